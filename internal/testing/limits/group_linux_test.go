// SPDX-License-Identifier: MIT

package limits

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/internal/testing/stress"
	"github.com/ringside-io/ringside/ufile"
)

// group is a control group with a memory limit.
type group struct {
	dir string
	fd  *os.File
}

// newGroup makes a group below the test's own, or below the root. It enables the memory
// controller for children only on the machine of a kernel lane, where no other process is
// affected.
func newGroup(t *testing.T, limit int) *group {
	t.Helper()
	for _, parent := range parents(t) {
		g := &group{dir: filepath.Join(parent, fmt.Sprintf("ringside-limits-%d", os.Getpid()))}
		if os.Mkdir(g.dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { g.remove(t) })
		if g.set("memory.max", strconv.Itoa(limit)) != nil {
			continue // without the memory controller
		}
		_ = g.set("memory.swap.max", "0") // the file is missing where there is no swap
		var err error
		if g.fd, err = os.Open(g.dir); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = g.fd.Close() })
		return g
	}
	t.Skip("needs to make a group with the memory controller of cgroup v2")
	return nil
}

// parents returns the groups below which a new one may be made.
func parents(t *testing.T) []string {
	root := "/sys/fs/cgroup"
	if os.Getenv(ringtest.LaneEnv) != "" && os.Getuid() == 0 {
		root = directory(t)
		if err := syscall.Mount("cgroup2", root, "cgroup2", 0, ""); err != nil {
			t.Skipf("needs to mount cgroup2: %v", err)
		}
		t.Cleanup(func() { _ = syscall.Unmount(root, syscall.MNT_DETACH) })
		if err := os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+memory"), 0); err != nil {
			t.Skipf("needs the memory controller: %v", err)
		}
	}
	dirs := []string{root}
	own, _ := os.ReadFile("/proc/self/cgroup")
	for line := range strings.Lines(string(own)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			dirs = append(dirs, filepath.Join(root, path))
		}
	}
	slices.Reverse(dirs)
	return slices.DeleteFunc(slices.Compact(dirs), func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, "cgroup.controllers")) // the controller of version 1 has no such file
		return err != nil
	})
}

func (g *group) set(name, value string) error {
	return os.WriteFile(filepath.Join(g.dir, name), []byte(value), 0)
}

// attr makes a child start in the group.
func (g *group) attr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(g.fd.Fd())}
}

// reached returns how often the limit was reached.
func (g *group) reached(t *testing.T) int {
	t.Helper()
	events, err := os.ReadFile(filepath.Join(g.dir, "memory.events"))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("memory.events: %q", events)
	n, err := strconv.Atoi(number(string(events), "max"))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// remove removes the group. Its last process has ended, but may still be counted.
func (g *group) remove(t *testing.T) {
	err := os.Remove(g.dir)
	for end := time.Now().Add(ringtest.Patience); errors.Is(err, syscall.EBUSY) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
		err = os.Remove(g.dir)
	}
	if err != nil {
		t.Error(err)
	}
}

// fill keeps the given number of bytes in the file cache, and many bytes in sockets.
func (w *environment) fill(dir string, bytes int) {
	const size, count = 256 << 10, 8
	name := filepath.Join(dir, "big")
	err := withBatch(name, ufile.BatchOptions{Buffers: count, BufferSize: size}, func(f *ufile.File, b *ufile.Batch) error {
		for _, write := range []bool{true, false} {
			for off := 0; off < bytes; off += count * size {
				if err := moveThrough(f, b, count, size, int64(off), write); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err := errors.Join(err, os.Remove(name)); err != nil {
		w.problem("a large file: %v", err)
	}
	var all sync.WaitGroup
	errs := make(chan error, 32)
	for i := range cap(errs) {
		all.Go(func() { errs <- w.much(uint64(i) << 24) })
	}
	all.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			w.problem("much through a connection: %v", err)
		}
	}
}

// much sends a large stream and reads it back, after a pause.
func (w *environment) much(first uint64) error {
	c, err := w.Dial(first)
	if err != nil {
		return err
	}
	defer c.Close()
	p := make([]byte, 512<<10)
	stress.Bytes(p, first)
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(p)
		sent <- errors.Join(err, c.CloseWrite())
	}()
	q := make([]byte, 4096)
	for got := 0; ; {
		n, err := c.Read(q)
		if got+n > len(p) || string(q[:n]) != string(p[got:got+n]) {
			return fmt.Errorf("wrong data at %d", got)
		}
		if got += n; err == io.EOF && got == len(p) {
			return <-sent
		}
		if err != nil {
			return fmt.Errorf("got %d of %d bytes: %w", got, len(p), err)
		}
	}
}
