// SPDX-License-Identifier: MIT

package replica

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var sweep = flag.String("sweep", "", "the calls of TestErrnoSweep, separated by commas; all with -long")

// sweptCalls are the file calls of a node without those that sockets use, too, and sweptErrors what each of them returns in turn.
const (
	sweptCalls = "openat,pwrite64,pread64,fsync,fdatasync,newfstatat,fstat,ftruncate,fallocate,fcntl,flock,mkdirat,renameat,unlinkat,getdents64,mmap,pwritev"
	sweptErrno = "EIO,EROFS,EMFILE,ENOSPC,ENOMEM"
)

// TestErrnoSweep: whatever call of its files fails on the leader, with whatever error, another node takes writes
// within Options.Election and three seconds, or the leader still does. A write makes a database in a new directory.
// The program strace makes the calls fail.
//
// Promise: replica/unfit-leader
func TestErrnoSweep(t *testing.T) {
	calls := *sweep
	if calls == "" && *long > 0 {
		calls = sweptCalls
	}
	if calls == "" {
		t.Skip("takes minutes: -long, or -sweep with calls")
	}
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("needs the program strace (Debian: strace)")
	}
	t.Setenv("RINGSIDE_BACKEND", "plain") // strace does not see what a ring does
	c := newChaos(t, noBug, false, false)
	c.disks = true
	c.ask(command{Kind: "setup", DB: "two"})
	number := 0
	for call := range strings.SplitSeq(calls, ",") {
		for errno := range strings.SplitSeq(sweptErrno, ",") {
			t.Run(call+"/"+errno, func(t *testing.T) {
				leader := c.leads()
				stop := injectError(t, c.node(leader).cmd.Process.Pid, call, errno)
				number++
				begin := time.Now()
				by := c.write(t, number)
				took := time.Since(begin)
				stop()
				t.Logf("%v, by %s; %s led", took.Round(time.Millisecond), by, leader)
				if limit := 600*time.Millisecond + 3*time.Second; took > limit {
					t.Errorf("no write for %v", took)
				}
				select {
				case <-c.node(leader).gone: // the Go runtime ends a process without memory
					c.start(leader, 0)
				default:
				}
			})
		}
	}
	for _, w := range c.judge() {
		t.Error(w)
	}
}

// leads returns the node that leads, and accepts writes.
func (c *chaos) leads() string {
	c.t.Helper()
	c.ask(command{Kind: "setup", DB: "one"})
	for {
		for _, id := range chaosIDs {
			if c.node(id).ask(command{Kind: "append", DB: "one", Val: int(commandNumber.Add(1))}, time.Second).Err == "" {
				return id
			}
		}
	}
}

// write makes a database in a new directory on any node that can, and returns the node.
func (c *chaos) write(t *testing.T, number int) (by string) {
	done := make(chan struct{})
	var once sync.Once
	var over sync.WaitGroup
	for _, id := range chaosIDs {
		over.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				if c.node(id).ask(command{Kind: "setup", DB: fmt.Sprintf("sweep/%d-%s-%d/db", number, id, n)}, time.Second).Err == "" {
					once.Do(func() {
						by = id
						close(done)
					})
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Error("no write for 20 s")
		once.Do(func() { close(done) })
	}
	over.Wait()
	return by
}

// injectError makes a call of a process fail until stop is called.
func injectError(t *testing.T, pid int, call, errno string) (stop func()) {
	cmd := exec.Command("strace", "-f", "-qq", "-o", os.DevNull, "-e", "trace="+call, "-e", "inject="+call+":error="+errno, "-p", fmt.Sprint(pid))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, cmd.Start())
	until(t, "strace is attached to all threads", func() bool {
		all, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
		must(t, err)
		for _, name := range all {
			if p, err := os.ReadFile(name); err == nil && strings.Contains(string(p), "\nTracerPid:\t0\n") {
				return false
			}
		}
		return len(all) > 0
	})
	return func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		_ = cmd.Wait()
	}
}
