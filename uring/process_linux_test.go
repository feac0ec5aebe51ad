// SPDX-License-Identifier: MIT

package uring_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

// Environment variables of the processes that the tests below start.
const (
	endEnv     = "RINGSIDE_TEST_URING_END"
	inheritEnv = "RINGSIDE_TEST_URING_INHERIT"
	fastExit   = "GORACE=atexit_sleep_ms=0"
)

// endings are the ways in which a process ends or is replaced.
var endings = []string{"exit", "exec", "kill"}

// TestEndWithOperationsInFlight lets processes exit, be killed, and execute another program
// while operations of all kinds are in flight on rings of all flavours. Each process must
// end, and the new program must run, without waiting for operations that never end.
// Promise: uring/process-exit-start
func TestEndWithOperationsInFlight(t *testing.T) {
	ringtest.NeedRing(t)
	for _, how := range endings {
		t.Run(how, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*ringtest.Patience)
			defer cancel()
			cmd := exec.CommandContext(ctx, "/proc/self/exe", "-test.run=^TestEndWithOperationsInFlightChild$", "-test.v")
			cmd.Env = append(os.Environ(), endEnv+"="+how, fastExit)
			cmd.Dir = t.TempDir()
			out, err := cmd.CombinedOutput()
			if ctx.Err() != nil {
				t.Fatalf("the process has not ended\n%s", out)
			}
			killed := strings.Contains(fmt.Sprint(err), "killed")
			if (err != nil) != (how == "kill") || killed != (how == "kill") || !bytes.Contains(out, []byte("in flight")) {
				t.Errorf("%v\n%s", err, out)
			}
			if how == "exec" && !bytes.Contains(out, []byte("another program")) {
				t.Errorf("the new program did not run\n%s", out)
			}
		})
	}
}

// TestEndWithOperationsInFlightChild runs in the started process.
func TestEndWithOperationsInFlightChild(t *testing.T) {
	how := os.Getenv(endEnv)
	if how == "" {
		return
	}
	if how == "after exec" {
		fmt.Println("another program")
		wantNoRings(t)
		return
	}
	runtime.LockOSThread()
	var rings []*uring.Ring
	for _, f := range ringtest.Flavours {
		t.Run(f.Name, func(t *testing.T) {
			ringtest.NeedKernel(t, "ring flavour "+f.Name, f.Since)
			r, err := uring.Open(f.Opts)
			ctlOK(t, "open", err)
			rings = append(rings, r)
			startForever(t, r)
		})
	}
	if len(rings) == 0 {
		t.Fatal("no ring")
	}
	fmt.Println("in flight")
	switch how {
	case "exit":
		os.Exit(0)
	case "kill":
		unix.Kill(os.Getpid(), unix.SIGKILL)
		select {}
	}
	ctlOK(t, "setenv", os.Setenv(endEnv, "after exec"))
	args := []string{"uring.test", "-test.run=^TestEndWithOperationsInFlightChild$", "-test.v"}
	t.Fatal(unix.Exec("/proc/self/exe", args, os.Environ()))
}

// startForever starts operations that never end on their own: a poll, a read, a timeout, a
// chain that waits, an operation that blocks in a worker thread, and a poll of the ring
// itself. Their descriptors and memory are left to the end of the process.
func startForever(t *testing.T, r *uring.Ring) {
	var fds [2]int
	ctlOK(t, "pipe", unix.Pipe2(fds[:], unix.O_CLOEXEC))
	if err := unix.Mkfifo("fifo", 0o600); err != nil && err != unix.EEXIST {
		t.Fatal(err)
	}
	path, err := uring.NewPath("fifo")
	ctlOK(t, "path", err)
	buf := make([]byte, 16)
	forever = append(forever, buf, path)
	rd := uring.Fd(fds[0])
	push(t, r).PollAdd(rd, pollIn)
	push(t, r).Read(rd, buf, 0)
	push(t, r).Timeout(anHour, 0, 0)
	push(t, r).PollAdd(rd, pollIn).SetFlags(uring.SQELink)
	push(t, r).Nop()
	push(t, r).OpenAt(uring.AtCWD, path, unix.O_RDONLY|unix.O_CLOEXEC, 0).SetFlags(uring.SQEAsync)
	push(t, r).PollAdd(uring.Fd(r.FD()), pollIn)
	push(t, r).Nop().SetFlags(uring.SQEDrain)
	_, err = r.Submit()
	ctlOK(t, "submit", err)
	ctlUntil(t, "the kernel takes the entries", func() bool { return r.Pending() == 0 })
}

// forever keeps the memory of operations that never end.
var forever []any

// TestChildrenGetNoRing starts a process while rings are open. The child must inherit no
// descriptor of a ring, with which it could submit with its parent's rights, and no mapping
// that both write to between fork and exec.
// Promise: uring/process-exit-start
func TestChildrenGetNoRing(t *testing.T) {
	if os.Getenv(inheritEnv) != "" {
		wantNoRings(t)
		return
	}
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		wantNotForked(t)
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestChildrenGetNoRing$")
		cmd.Env = append(os.Environ(), inheritEnv+"=1", fastExit)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		ctlNops(t, r, 1, 3) // the ring of the parent still works
	})
}

// wantNoRings fails when the process has a descriptor of a ring, or a mapping.
func wantNoRings(t *testing.T) {
	t.Helper()
	if fds := ringtest.Descriptors(t, "io_uring"); len(fds) > 0 {
		t.Errorf("descriptors of rings: %v", fds)
	}
	if m := ctlRingMappings(t); len(m) > 0 {
		t.Errorf("mappings of rings: %v", m)
	}
}

// wantNotForked checks that fork copies no mapping of a ring.
func wantNotForked(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Skipf("needs /proc/self/smaps: %v", err)
	}
	mapping, rings := "", 0
	for line := range strings.Lines(string(text)) {
		flags, ok := strings.CutPrefix(line, "VmFlags:")
		switch {
		case !ok && strings.Contains(line, "[io_uring]"):
			mapping = line
		case ok && mapping != "":
			if rings++; !strings.Contains(flags, " dc") {
				t.Errorf("fork copies %q; its flags are%s", mapping, flags)
			}
			mapping = ""
		}
	}
	if rings == 0 {
		t.Error("no mapping of a ring")
	}
}

// TestCloseThroughTheRingIsDone closes, through the ring, a file that was open for writing.
// Soon after the completion the file is no longer open: the kernel grants a lease, which
// needs that, as running the file as a program does. It need not be so at once. A kernel
// thread may still hold the file for work that the ring gave it: every buffered write of
// ext4, and the close on file systems that flush then. That thread lets go of the file
// after its completion or, with deferred task work, at the next enter that waits.
func TestCloseThroughTheRingIsDone(t *testing.T) {
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		name := filepath.Join(t.TempDir(), "program")
		for range ringtest.Rounds(20, 5) {
			for _, flags := range []uring.SQEFlags{0, uring.SQEAsync} {
				writeAndClose(t, r, name, flags)
				ctlUntil(t, "a lease after a close", func() bool {
					complete(t, r, func(e *uring.SQE) { e.Nop() })
					return lease(t, name) == nil
				})
			}
		}
	})
}

// writeAndClose opens a file, writes to it and closes it, all through the ring.
func writeAndClose(t *testing.T, r *uring.Ring, name string, flags uring.SQEFlags) {
	t.Helper()
	path, err := uring.NewPath(name)
	ctlOK(t, "path", err)
	data := []byte("#!/bin/true\n")
	c := complete(t, r, func(e *uring.SQE) {
		e.OpenAt(uring.AtCWD, path, unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o700)
	})
	if c.Res < 0 {
		t.Fatal(c.Err())
	}
	fd := int(c.Res)
	wantRes(t, complete(t, r, func(e *uring.SQE) { e.Write(uring.Fd(fd), data, 0).SetFlags(flags) }), len(data))
	wantRes(t, complete(t, r, func(e *uring.SQE) { e.Close(fd) }), 0)
}

// lease asks for a lease, which is refused while the file is open for writing.
func lease(t *testing.T, name string) error {
	t.Helper()
	f, err := os.Open(name)
	ctlOK(t, "open", err)
	defer f.Close()
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	if err == unix.EINVAL {
		t.Skipf("needs a file system with leases: %v", err)
	}
	return err
}
