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

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/reactor"
	"github.com/ringside-io/ringside/ufile"
	"github.com/ringside-io/ringside/uring"
)

const tasksEnv = "RINGSIDE_TEST_TASK_LIMIT"

// TestAtTheLimitOfTasksOfAUser is TestAtTheLimitOfTasks with RLIMIT_NPROC, which binds
// ordinary users.
func TestAtTheLimitOfTasksOfAUser(t *testing.T) {
	ringtest.NeedRing(t)
	id := 1<<20 + os.Getpid()
	ringtest.NeedUser(t, id)
	if !ringtest.InChild(t, nil) {
		return
	}
	dir, err := os.MkdirTemp("", "ringside-tasks")
	if err == nil {
		err = os.Chmod(dir, 0o777)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	atTheLimit(t, dir, "RLIMIT_NPROC", func() {
		if err := ringtest.Become(id); err != nil {
			t.Fatal(err)
		}
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		n := uint64(len(tasks))
		setTasks(t, n, 2*n+64)
	}, func() {
		var now unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NPROC, &now); err != nil {
			t.Fatal(err)
		}
		setTasks(t, now.Max, now.Max)
	})
}

func setTasks(t *testing.T, soft, hard uint64) {
	t.Helper()
	if err := unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: soft, Max: hard}); err != nil {
		t.Fatal(err)
	}
}

// TestAtTheLimitOfTasks runs a process in a cgroup whose pids.max permits no more task.
// io_uring cannot create worker threads there. Automatic mode does without, at once, and
// Backend says why. ModeRing and reactor name the limit. Once the limit is higher, rings are used
// again.
func TestAtTheLimitOfTasks(t *testing.T) {
	if dir := os.Getenv(tasksEnv); dir != "" {
		ask := func(what string) {
			fmt.Println(what)
			_, _ = os.Stdin.Read(make([]byte, 1)) // until it is done
		}
		atTheLimit(t, dir, "pids.max", func() { ask("limit") }, func() { ask("lift") })
		return
	}
	ringtest.NeedRing(t)
	group := ringtest.NeedTaskGroup(t)
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
	put := func(file, text string) {
		if err := os.WriteFile(filepath.Join(group, file), []byte(text), 0); err != nil {
			t.Error(err)
		}
	}
	put("cgroup.procs", strconv.Itoa(cmd.Process.Pid))
	for lines := bufio.NewScanner(out); lines.Scan(); {
		switch text := lines.Text(); text {
		case "limit":
			now, _ := os.ReadFile(filepath.Join(group, "pids.current"))
			put("pids.max", strings.TrimSpace(string(now)))
			_, _ = in.Write([]byte{1})
		case "lift":
			put("pids.max", "max")
			_, _ = in.Write([]byte{1})
		default:
			t.Log(text)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// atTheLimit sets a limit, writes and syncs below it, and writes after it was lifted.
func atTheLimit(t *testing.T, dir, limit string, set, lift func()) {
	// The runtime needs spare threads.
	var wg sync.WaitGroup
	for range 24 {
		wg.Go(func() { _ = syscall.Nanosleep(&syscall.Timespec{Nsec: 200e6}, nil) })
	}
	wg.Wait()
	set()

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
				if _, reason := auto.Backend(); strings.Contains(reason, limit) {
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
	checkNoWorkers(t, limit, "fsync", r.Do(&op).Err())
	path, err := uring.NewPath(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	open := reactor.Op{Keep: path}
	open.SQE.UnlinkAt(uring.AtCWD, path, 0)
	checkNoWorkers(t, limit, "unlink", r.Do(&open).Err())
	t.Log("reactor:", time.Since(begin))

	lift()
	direct, err := auto.OpenFile(filepath.Join(dir, "0"), os.O_RDWR|syscall.O_DIRECT, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	ringed := auto.Stats().Ring
	for begin = time.Now(); ; time.Sleep(10 * time.Millisecond) {
		for i := range int64(4) { // one write at a time needs no ring
			wg.Go(func() {
				if _, err := direct.WriteAt(ufile.AlignedBuffer(64<<10), i<<16); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		name, reason := auto.Backend()
		if name == ufile.ModeRing.String() && auto.Stats().Ring > ringed {
			break
		}
		if time.Since(begin) > 30*time.Second {
			t.Fatalf("plain calls are used although the limit was lifted: %s, %s", name, reason)
		}
	}
	t.Log("rings are used again after", time.Since(begin))
}

func checkNoWorkers(t *testing.T, limit, what string, err error) {
	t.Helper()
	if !errors.Is(err, reactor.ErrNoWorkers) || !errors.Is(err, syscall.ECANCELED) || !strings.Contains(err.Error(), limit) {
		t.Errorf("%s: %v, want the limit's name", what, err)
	} else {
		t.Log(what, err)
	}
}

// TestManySystems reads through 120 Systems as a user who may lock little memory, or may have
// few descriptors. ModeAuto always reads. ModeRing reads, or its error names the limit.
// Promise: reactor/little-memory-few
func TestManySystems(t *testing.T) {
	ringtest.NeedRing(t)
	id := 1<<20 + os.Getpid()
	ringtest.NeedUser(t, id)
	for _, limit := range []struct {
		name   string
		number int
		value  uint64
	}{{"RLIMIT_MEMLOCK", unix.RLIMIT_MEMLOCK, 64 << 10}, {"RLIMIT_NOFILE", unix.RLIMIT_NOFILE, 60}} {
		t.Run(limit.name, func(t *testing.T) {
			if !ringtest.InChild(t, nil) {
				return
			}
			file, err := os.CreateTemp("", "ringside-many")
			if err == nil {
				err = errors.Join(os.Remove(file.Name()), file.Chmod(0o644), file.Truncate(64<<10))
			}
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			if err := unix.Setrlimit(limit.number, &unix.Rlimit{Cur: limit.value, Max: limit.value}); err != nil {
				t.Fatal(err)
			}
			if limit.number == unix.RLIMIT_MEMLOCK { // it does not bind root
				if err := ringtest.Become(id); err != nil {
					t.Fatal(err)
				}
			}
			path := fmt.Sprintf("/proc/self/fd/%d", file.Fd())
			for _, mode := range []ufile.Mode{ufile.ModeRing, ufile.ModeAuto} {
				named := 0
				many := func(t *testing.T) { named = manySystems(t, path, mode, limit.name) }
				t.Run(mode.String(), many)
				if named > 0 || limit.name != "RLIMIT_NOFILE" || mode != ufile.ModeRing {
					continue
				}
				// The last System took the last descriptor, so that no file could be opened. With
				// one descriptor less it cannot open its rings.
				if _, err := syscall.Dup(int(file.Fd())); err != nil {
					t.Fatal(err)
				}
				if t.Run("one less", many); named == 0 {
					t.Error("no ring was refused with 60 descriptors")
				}
			}
		})
	}
}

// manySystems reads a file through 120 Systems whose files stay open, and returns how many errors
// name the limit.
func manySystems(t *testing.T, path string, mode ufile.Mode, limit string) (named int) {
	refused := 0
	for i := range 120 {
		s, err := ufile.NewSystem(ufile.Options{Mode: mode})
		if err == nil {
			err = readBy(t, s, path)
		}
		if err != nil {
			refused++
		}
		switch {
		case err == nil:
		case strings.Contains(err.Error(), limit) && mode == ufile.ModeRing:
			if named++; named == 1 {
				t.Log(err)
			}
		case errors.Is(err, syscall.EMFILE) && strings.HasPrefix(err.Error(), "open "): // as package os
		default:
			t.Errorf("mode %v, System %d: %v", mode, i, err)
		}
	}
	t.Logf("%v: %d of 120 refused, %d with the limit's name", mode, refused, named)
	return named
}

// readBy reads a file through the rings of a system, if it has some.
func readBy(t *testing.T, s *ufile.System, path string) error {
	f, err := s.OpenFile(path, os.O_RDONLY|syscall.O_DIRECT, 0)
	if errors.Is(err, syscall.EINVAL) { // a tmpfs before Linux 6.6
		f, err = s.Open(path)
	}
	if err != nil {
		return err
	}
	if _, err = f.ReadAt(ufile.AlignedBuffer(4096), 0); err != nil {
		f.Close()
		return err
	}
	t.Cleanup(func() { f.Close() })
	return nil
}
