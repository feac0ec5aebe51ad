// SPDX-License-Identifier: MIT

//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// litestream measures Litestream with databases that do not commit.
func litestream(o options) error {
	if err := o.create(); err != nil {
		return err
	}
	var config bytes.Buffer
	fmt.Fprintf(&config, "dbs:\n")
	for i := range o.dbs {
		fmt.Fprintf(&config, "  - path: %s\n    replica: {type: file, path: %s}\n", o.path(i), filepath.Join(o.target, filepath.Base(o.path(i))))
	}
	name := filepath.Join(o.dir, "litestream.yml")
	if err := os.WriteFile(name, config.Bytes(), 0o600); err != nil {
		return err
	}
	var said bytes.Buffer
	cmd := exec.Command(o.exe, "replicate", "-config", name)
	cmd.Stdout, cmd.Stderr = &said, &said
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	pid := strconv.Itoa(cmd.Process.Pid)
	stored := 0
	for stored < o.dbs && time.Since(begin) < o.most {
		select {
		case err := <-ended:
			return fmt.Errorf("litestream ended after %v with %d of %d databases stored: %v\n%s",
				time.Since(begin).Round(time.Millisecond), stored, o.dbs, err, said.Bytes()[max(0, said.Len()-500):])
		case <-time.After(50 * time.Millisecond):
		}
		found, _ := filepath.Glob(filepath.Join(o.target, "*", "ltx", "0", "*.ltx"))
		stored = len(found)
	}
	fmt.Printf("%d databases: %d stored after %.2f s\n", o.dbs, stored, time.Since(begin).Seconds())
	time.Sleep(2 * time.Second)
	before, since := processCPU(pid), time.Now()
	time.Sleep(o.turn)
	rss, fds := process(pid)
	fmt.Printf("litestream: RSS %d MB, %d descriptors, %.2f %% of a processor\n",
		rss, fds, 100*(processCPU(pid)-before).Seconds()/time.Since(since).Seconds())
	_ = cmd.Process.Kill()
	<-ended
	return nil
}

// processCPU returns the processor time of a process.
func processCPU(pid string) time.Duration {
	stat, _ := os.ReadFile("/proc/" + pid + "/stat")
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}
