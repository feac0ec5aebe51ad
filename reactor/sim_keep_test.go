// SPDX-License-Identifier: MIT

package reactor

import (
	"runtime"
	"testing"
	"testing/synctest"
	"weak"

	"github.com/ringside-io/ringside/internal/testing/kernelsim"
)

// TestSlotKeepsTheBuffer leaves the only reference to an operation's memory in the reactor:
// the memory must stay reachable until the completion, and no longer.
// Promise: reactor/buffer-belongs-operation
func TestSlotKeepsTheBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kernelsim.New(kernelsim.Options{Seed: 1})
		defer k.Close()
		r, err := New(Options{Loops: 1, open: simOpener(k, 8)})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		pipe := k.Pipe()
		done := make(chan struct{})
		buf, other := queueUnknown(t, r, pipe, done, true)
		collect()
		if buf.Value() == nil || other.Value() == nil {
			t.Fatal("the collector freed memory that the kernel still has")
		}
		k.Feed(pipe, 8)
		<-done
		synctest.Wait()
		collect()
		if buf.Value() != nil || other.Value() != nil {
			t.Error("the slot keeps the memory of an ended operation")
		}
	})
}

// TestSeededFreedBuffer does not pass the buffer to the reactor: the collector frees memory
// that the kernel still has, which the test above would find.
// Promise: tests/freed-buffer-found
func TestSeededFreedBuffer(t *testing.T) {
	if testing.Short() {
		t.Skip("checks another test, not the product: not with -short")
	}
	synctest.Test(t, func(t *testing.T) {
		elsewhere := make([]byte, 64) // so that no freed memory is written to
		k := kernelsim.New(kernelsim.Options{Seed: 1, Memory: func(uint64, int) []byte { return elsewhere }})
		defer k.Close()
		r, err := New(Options{Loops: 1, open: simOpener(k, 8)})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		buf, other := queueUnknown(t, r, k.Pipe(), make(chan struct{}, 1), false)
		collect()
		if buf.Value() != nil || other.Value() != nil {
			t.Error("the memory is still reachable")
		}
	})
}

// queueUnknown queues a read and drops its references to the read's memory. Only the
// reactor has references then, if it was given them.
func queueUnknown(t *testing.T, r *Reactor, fd int, done chan struct{}, told bool) (weak.Pointer[[64]byte], weak.Pointer[[128]byte]) {
	buf, other := new([64]byte), new([128]byte)
	op := simRead(fd, buf[:8])
	if told {
		op.Keep = other
	} else {
		op.Buf = nil
	}
	if _, err := r.Queue(op, func(Result) { close(done) }); err != nil {
		t.Fatal(err)
	}
	return weak.Make(buf), weak.Make(other)
}

func collect() {
	for range 3 {
		runtime.GC()
	}
}
