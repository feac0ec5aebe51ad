// SPDX-License-Identifier: MIT

package uring_test

import (
	"bytes"
	"os"
	"runtime"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

func init() {
	ledgerOp(uring.OpReadMultishot, row{
		since: "6.7",
		uses:  []string{"SQE.ReadMultishot"},
		goldens: []golden{
			{"fd", func(e *uring.SQE) { e.ReadMultishot(uring.Fd(7), 0x203) },
				abi.SQE{Opcode: 49, Flags: 0x20, Fd: 7, Off: minusOne, BufIndex: 0x203}},
			{"fixed", func(e *uring.SQE) { e.ReadMultishot(uring.FixedFd(7), 1) },
				abi.SQE{Opcode: 49, Flags: 0x20 | 0x01, Fd: 7, Off: minusOne, BufIndex: 1}},
		},
		kernel: kernelReadMultishot,
	})
}

// The helpers below serve the tests of sockets, timers and polls, whose operations complete
// late, several times, or never.

// push returns a free entry. When the queue is full it submits the pending entries.
func push(t testing.TB, r *uring.Ring) *uring.SQE {
	t.Helper()
	for {
		if e := r.SQE(); e != nil {
			return e
		}
		if _, err := r.Submit(); err != nil {
			t.Fatal(err)
		}
		if r.SetupFlags()&uring.SetupSQPoll != 0 {
			if err := r.WaitSQ(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// byUserData submits pending entries and returns n completions of n different operations.
func byUserData(t testing.TB, r *uring.Ring, n int) map[uint64]uring.CQE {
	t.Helper()
	m := map[uint64]uring.CQE{}
	for _, c := range ringtest.Await(t, r, n) {
		if twice, ok := m[c.UserData]; ok {
			t.Fatalf("two completions of one operation: %+v, %+v", twice, c)
		}
		m[c.UserData] = c
	}
	return m
}

// await submits pending entries and returns the next completion, which must have the given
// user data.
func await(t testing.TB, r *uring.Ring, userData uint64) uring.CQE {
	t.Helper()
	c := ringtest.Await(t, r, 1)[0]
	if c.UserData != userData {
		t.Fatalf("completion %+v, want one with user data %d", c, userData)
	}
	return c
}

// wantQuiet submits pending entries, passes a NOP through the ring, and fails when another
// operation has completed.
func wantQuiet(t testing.TB, r *uring.Ring) {
	t.Helper()
	const mark = 1<<64 - 1
	push(t, r).Nop().SetUserData(mark)
	await(t, r, mark)
}

// runTaskWork lets the kernel post completions without reaping them.
func runTaskWork(t testing.TB, r *uring.Ring) {
	t.Helper()
	if _, err := r.Wait(uring.WaitOptions{}); err != nil {
		t.Fatal(err)
	}
}

// wantMore checks whether the operation of a completion continues.
func wantMore(t testing.TB, c uring.CQE, more bool) {
	t.Helper()
	if c.Has(uring.CQEMore) != more {
		t.Fatalf("completion %+v (%v), want CQEMore %v", c, c.Err(), more)
	}
}

// write writes all of s.
func write(t testing.TB, f *os.File, s string) {
	t.Helper()
	if _, err := f.WriteString(s); err != nil {
		t.Fatal(err)
	}
}

// keep keeps memory that entries point to reachable until the test ends.
func keep(t testing.TB, what ...any) { t.Cleanup(func() { runtime.KeepAlive(what) }) }

// bufRing registers a group of n provided buffers of the given size.
func bufRing(t testing.TB, r *uring.Ring, group uint16, n, size int) *uring.BufRing {
	t.Helper()
	b, err := r.NewBufRing(uring.BufRingOptions{Group: group, Entries: n, BufferSize: size})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// take returns a copy of the data of a completion and recycles the buffer.
func take(t testing.TB, b *uring.BufRing, c uring.CQE) []byte {
	t.Helper()
	if !c.Has(uring.CQEBuffer) {
		t.Fatalf("completion %+v (%v) without a buffer", c, c.Err())
	}
	data, done := b.Take(c)
	if len(data) != int(c.Res) || !done {
		t.Fatalf("buffer of %d bytes, done %v, for completion %+v", len(data), done, c)
	}
	data = bytes.Clone(data)
	b.Recycle(c.BufferID())
	b.Publish()
	return data
}

// collect keeps a multishot operation armed until its completions have delivered all of
// want, in order. A full CQ or an empty group may end the operation; collect arms it again.
// No data may be lost.
func collect(t testing.TB, r *uring.Ring, b *uring.BufRing, want []byte, arm func(e *uring.SQE)) (endings int) {
	t.Helper()
	var got []byte
	for len(got) < len(want) {
		c := ringtest.Await(t, r, 1)[0]
		if c.Errno() != syscall.ENOBUFS {
			if c.Res <= 0 {
				t.Fatalf("completion %+v (%v) after %d of %d bytes", c, c.Err(), len(got), len(want))
			}
			got = append(got, take(t, b, c)...)
		}
		if !c.Has(uring.CQEMore) {
			endings++
			arm(push(t, r))
		}
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	return endings
}

// cancelAll ends the operation with the given user data, if it still runs, and
// reaps its last completion.
func cancelAll(t testing.TB, r *uring.Ring, userData uint64) {
	t.Helper()
	const mark = 1<<64 - 2
	push(t, r).CancelWith(uring.CancelOptions{UserData: userData, All: true}).SetUserData(mark)
	running, answered := 1, false
	for running > 0 || !answered {
		c := ringtest.Await(t, r, 1)[0]
		switch {
		case c.UserData == mark:
			answered = true
			if c.Res < 0 {
				t.Fatalf("cancel: %v", c.Err())
			}
		case !c.Has(uring.CQEMore):
			running--
		}
	}
}

func kernelReadMultishot(t *testing.T) {
	ringtest.NeedOp(t, uring.OpReadMultishot, "6.7")
	t.Run("pipe", func(t *testing.T) { ringtest.OverFlavours(t, readMultishotPipe) })
	t.Run("overflow", func(t *testing.T) { ringtest.OverFlavours(t, readMultishotOverflow) })
	t.Run("dry group", func(t *testing.T) { ringtest.OverFlavours(t, readMultishotDry) })
	t.Run("refused", func(t *testing.T) { ringtest.OverFlavours(t, readMultishotRefused) })
}

func readMultishotPipe(t *testing.T, r *uring.Ring) {
	rd, wr := osPipe(t)
	b := bufRing(t, r, 3, 4, 16)
	push(t, r).ReadMultishot(fdOf(rd), 3).SetUserData(9)
	wantQuiet(t, r)
	for _, s := range []string{"a", "bcd", "0123456789abcdef", "e", "f"} {
		write(t, wr, s)
		c := await(t, r, 9)
		wantMore(t, c, true)
		if got := take(t, b, c); string(got) != s {
			t.Fatalf("read %q, want %q", got, s)
		}
	}
	wr.Close()
	c := await(t, r, 9)
	wantRes(t, c, 0) // end of file
	wantMore(t, c, false)
}

// readMultishotOverflow writes more often than the smallest CQ has slots before it reaps.
func readMultishotOverflow(t *testing.T, r *uring.Ring) {
	rd, wr := osPipe(t)
	b := bufRing(t, r, 3, 16, 16)
	arm := func(e *uring.SQE) { e.ReadMultishot(fdOf(rd), 3).SetUserData(9) }
	arm(push(t, r))
	runTaskWork(t, r)
	var want []byte
	for i := range 10 {
		s := string(rune('a'+i)) + "123"
		write(t, wr, s)
		want = append(want, s...)
		runTaskWork(t, r)
	}
	if n := collect(t, r, b, want, arm); n > 0 && r.CQEntries() > 10 {
		t.Errorf("the operation ended %d times although the CQ has room for all completions", n)
	}
	cancelAll(t, r, 9)
}

func readMultishotDry(t *testing.T, r *uring.Ring) {
	rd, wr := osPipe(t)
	b := bufRing(t, r, 3, 2, 4)
	arm := func(e *uring.SQE) { e.ReadMultishot(fdOf(rd), 3).SetUserData(9) }
	arm(push(t, r))
	runTaskWork(t, r)
	write(t, wr, "abcdefghijkl")
	var held []uring.CQE
	for {
		c := await(t, r, 9)
		if !c.Has(uring.CQEMore) && c.Res < 0 {
			wantErrno(t, c, syscall.ENOBUFS)
			break
		}
		held = append(held, c)
		if !c.Has(uring.CQEMore) { // a full CQ ended it before the group was empty
			arm(push(t, r))
		}
	}
	if len(held) != 2 {
		t.Fatalf("%d completions before ENOBUFS from a group of 2", len(held))
	}
	got := append(take(t, b, held[0]), take(t, b, held[1])...)
	arm(push(t, r))
	collect(t, r, b, []byte("ijkl"), arm)
	if string(got) != "abcdefgh" {
		t.Fatalf("read %q", got)
	}
	cancelAll(t, r, 9)
}

func readMultishotRefused(t *testing.T, r *uring.Ring) {
	rd, _ := osPipe(t)
	bufRing(t, r, 3, 2, 4)
	do := func(fd uring.FD, n uint32, group uint16) uring.CQE {
		return ringtest.Do(t, r, func(e *uring.SQE) { e.ReadMultishot(fd, group).Raw().Len = n })
	}
	wantErrno(t, do(fdOf(rd), 4, 3), syscall.EINVAL) // the reason why the builder takes no length
	wantErrno(t, do(uring.Fd(unusedFD), 0, 3), syscall.EBADF)
	wantErrno(t, do(fdOf(tempFile(t, "text")), 0, 3), ebadfd)
}
