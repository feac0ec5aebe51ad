// SPDX-License-Identifier: MIT

package ufile_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/reactor"
	"github.com/ringside-io/ringside/ufile"
	"github.com/ringside-io/ringside/uring"
)

const tasksEnv = "RINGSIDE_TEST_TASK_LIMIT"

// TestAtTheLimitOfTasks runs a process in a cgroup whose pids.max permits no more task.
// io_uring cannot create worker threads there. Automatic mode does without, at once, and
// Backend says why. ModeRing and reactor name the limit.
func TestAtTheLimitOfTasks(t *testing.T) {
	if dir := os.Getenv(tasksEnv); dir != "" {
		atTheLimit(t, dir)
		return
	}
	ringtest.NeedRing(t)
	group := ""
	for _, base := range []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup"} {
		dir, err := os.MkdirTemp(base, "ringside")
		if err == nil {
			t.Cleanup(func() { os.Remove(dir) })
		}
		if _, serr := os.Stat(filepath.Join(dir, "pids.max")); err == nil && serr == nil {
			group = dir
			break
		}
	}
	if group == "" {
		t.Skip("needs a cgroup with the controller pids that may be created")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^TestAtTheLimitOfTasks$", "-test.v")
	cmd.Env = append(os.Environ(), tasksEnv+"="+t.TempDir(), "GODEBUG=")
	cmd.Stderr = os.Stderr
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "ready" {
	}
	put := func(file, text string) {
		if err := os.WriteFile(filepath.Join(group, file), []byte(text), 0); err != nil {
			t.Error(err)
		}
	}
	put("cgroup.procs", strconv.Itoa(cmd.Process.Pid))
	now, _ := os.ReadFile(filepath.Join(group, "pids.current"))
	put("pids.max", strings.TrimSpace(string(now)))
	in.Close()
	for lines.Scan() {
		t.Log(lines.Text())
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func atTheLimit(t *testing.T, dir string) {
	// The runtime needs spare threads.
	var wg sync.WaitGroup
	for range 24 {
		wg.Go(func() { _ = syscall.Nanosleep(&syscall.Timespec{Nsec: 200e6}, nil) })
	}
	wg.Wait()
	fmt.Println("ready")
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the limit is set

	begin := time.Now()
	auto, err := ufile.NewSystem(ufile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var failed, paused int
	var mu sync.Mutex
	for g := range 4 {
		wg.Go(func() {
			f, err := auto.OpenFile(filepath.Join(dir, strconv.Itoa(g)), os.O_RDWR|os.O_CREATE|syscall.O_DIRECT, 0o600)
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Close()
			p := ufile.AlignedBuffer(64 << 10)
			for i := range int64(8) {
				_, err := f.WriteAt(p, i*int64(len(p)))
				mu.Lock()
				if err != nil {
					failed++
					t.Log(err)
				}
				if _, reason := auto.Backend(); strings.Contains(reason, "pids.max") {
					paused++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	t.Logf("automatic mode: %d of 32 writes failed, %v, plain after %d", failed, time.Since(begin), paused)
	if failed > 0 {
		t.Error("automatic mode does not fall back")
	}
	r, err := reactor.New(reactor.Options{Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f, err := os.Create(filepath.Join(dir, "sync"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	begin = time.Now()
	var op reactor.Op
	op.SQE.Fsync(uring.Fd(int(f.Fd())), false)
	checkNoWorkers(t, "fsync", r.Do(&op).Err())
	path, err := uring.NewPath(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	open := reactor.Op{Keep: path}
	open.SQE.UnlinkAt(uring.AtCWD, path, 0)
	checkNoWorkers(t, "unlink", r.Do(&open).Err())
	t.Log("reactor:", time.Since(begin))
}

func checkNoWorkers(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, reactor.ErrNoWorkers) || !errors.Is(err, syscall.ECANCELED) || !strings.Contains(err.Error(), "pids.max") {
		t.Errorf("%s: %v, want the limit's name", what, err)
	} else {
		t.Log(what, err)
	}
}
