// SPDX-License-Identifier: MIT

//go:build linux

package reactor

import (
	"os"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/uring"
)

// reuse closes a descriptor and reopens its number as an empty file.
func reuse(t *testing.T, fd int) *os.File {
	t.Helper()
	other, err := os.CreateTemp(t.TempDir(), "other")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() })
	if err := syscall.Dup3(int(other.Fd()), fd, syscall.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	return other
}

// fillPipe writes until a pipe is full and returns the number of bytes.
func fillPipe(t *testing.T, wr int) int {
	t.Helper()
	if err := syscall.SetNonblock(wr, true); err != nil {
		t.Fatal(err)
	}
	n := 0
	for p := make([]byte, 1<<16); ; {
		k, err := syscall.Write(wr, p)
		if err == syscall.EAGAIN {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		n += k
	}
	if err := syscall.SetNonblock(wr, false); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestDescriptorClosedInFlight closes descriptors whose operations wait in the kernel, and
// reuses their numbers for a file: the operations still refer to the old files, and end.
// Promise: reactor/cancellation-completion-exit
func TestDescriptorClosedInFlight(t *testing.T) {
	overKinds(t, func(t *testing.T, r *Reactor) {
		start := func(op *Op) (chan Result, ID) {
			done, after := make(chan Result, 1), make(chan Result, 1)
			id, err := r.Queue(op, func(res Result) { done <- res })
			if err != nil {
				t.Fatal(err)
			}
			nop := new(Op)
			nop.SQE.Nop()
			if _, err := id.loop.queue(nop, func(res Result) { after <- res }, false); err != nil {
				t.Fatal(err)
			}
			<-after // so that the kernel has resolved the descriptor
			return done, id
		}
		rd, wr := pipe(t)
		full := fillPipe(t, wr)
		op := &Op{Buf: []byte("for the pipe")}
		op.SQE.Write(uring.Fd(wr), op.Buf, 0)
		written, _ := start(op)
		other := reuse(t, wr)

		rd2, wr2 := pipe(t)
		got := make([]byte, 8)
		data, _ := start(readOp(rd2, got, 0))
		rd3, _ := pipe(t)
		cancelled, id := start(readOp(rd3, make([]byte, 8), 0))
		for _, fd := range []int{rd2, rd3} {
			if _, err := reuse(t, fd).WriteString("not this"); err != nil {
				t.Fatal(err)
			}
		}
		for n := 0; n < full; {
			k, err := syscall.Read(rd, make([]byte, full-n))
			if err != nil {
				t.Fatal(err)
			}
			n += k
		}
		if res := <-written; res.Res != int32(len(op.Buf)) {
			t.Errorf("write: %+v", res)
		}
		if s, err := other.Stat(); err != nil || s.Size() != 0 {
			t.Errorf("the write went to the file that reused the number: %d bytes, %v", s.Size(), err)
		}
		p := make([]byte, 20)
		if n, _ := syscall.Read(rd, p); string(p[:n]) != "for the pipe" {
			t.Errorf("the pipe got %q", p[:n])
		}
		syscall.Write(wr2, []byte("the pipe"))
		if res := <-data; res.Res != 8 || string(got) != "the pipe" {
			t.Errorf("read: %+v, %q", res, got)
		}
		if err := r.Cancel(id); err != nil {
			t.Error(err)
		}
		if res := <-cancelled; res.Errno() != syscall.ECANCELED {
			t.Errorf("cancelled: %+v", res)
		}
	})
}
