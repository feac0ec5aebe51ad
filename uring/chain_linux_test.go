// SPDX-License-Identifier: MIT

package uring_test

import (
	"slices"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

// TestChainBrokenByAShortRead lets the second of three linked reads end short: the third
// must not run. With a hard link it runs.
func TestChainBrokenByAShortRead(t *testing.T) {
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		if r.SQEntries() < 3 {
			r = ringtest.Open(t, &uring.Options{Entries: 4, CQEntries: 4})
		}
		f := tempFile(t, "0123456789")
		bufs := [3][]byte{make([]byte, 4), make([]byte, 4), make([]byte, 4)}
		keep(t, &bufs)
		for _, link := range []uring.SQEFlags{uring.SQELink, uring.SQEHardLink} {
			clear(bufs[2])
			push(t, r).Read(fdOf(f), bufs[0], 0).SetFlags(link).SetUserData(1)
			push(t, r).Read(fdOf(f), bufs[1], 8).SetFlags(link).SetUserData(2)
			push(t, r).Read(fdOf(f), bufs[2], 0).SetUserData(3)
			m := byUserData(t, r, 3)
			wantRes(t, m[1], 4)
			wantRes(t, m[2], 2)
			if link == uring.SQEHardLink {
				wantRes(t, m[3], 4)
				continue
			}
			wantErrno(t, m[3], syscall.ECANCELED)
			if bufs[2][0] != 0 {
				t.Error("the cancelled read wrote to its buffer")
			}
		}
	})
}

// TestHardLinkOutlivesFailure lets an operation of a chain fail, at its preparation and
// later. The failure cancels the rest of a soft chain but not of a hard one.
func TestHardLinkOutlivesFailure(t *testing.T) {
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		rd, _ := osPipe(t)
		buf := make([]byte, 1)
		keep(t, buf)
		for _, link := range []uring.SQEFlags{uring.SQELink, uring.SQEHardLink} {
			want := syscall.Errno(0)
			if link == uring.SQELink {
				want = syscall.ECANCELED
			}
			push(t, r).Read(uring.Fd(unusedFD), buf, 0).SetFlags(link).SetUserData(1)
			push(t, r).Nop().SetUserData(2)
			m := byUserData(t, r, 2)
			wantErrno(t, m[1], syscall.EBADF)
			wantErrno(t, m[2], want)

			// The operation is cancelled while it waits.
			push(t, r).Read(fdOf(rd), buf, 0).SetFlags(link).SetUserData(1)
			push(t, r).Nop().SetUserData(2)
			wantQuiet(t, r)
			push(t, r).Cancel(1).SetUserData(3)
			m = byUserData(t, r, 3)
			wantRes(t, m[3], 0)
			if e := m[1].Errno(); e != syscall.ECANCELED && e != syscall.EINTR {
				t.Errorf("the cancelled read: %+v", m[1])
			}
			wantErrno(t, m[2], want)
		}
	})
}

// TestChainsAreIndependent fails one of many chains that are submitted together.
func TestChainsAreIndependent(t *testing.T) {
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		chains := min(r.SQEntries()/2, 16)
		for i := range chains {
			e := push(t, r).Nop()
			if i%2 == 1 {
				e.Close(unusedFD)
			}
			e.SetFlags(uring.SQELink).SetUserData(uint64(i))
			push(t, r).Nop().SetUserData(uint64(100 + i))
		}
		m := byUserData(t, r, 2*chains)
		for i := range chains {
			want := [2][2]syscall.Errno{{0, 0}, {syscall.EBADF, syscall.ECANCELED}}[i%2]
			wantErrno(t, m[uint64(i)], want[0])
			wantErrno(t, m[uint64(100+i)], want[1])
		}
	})
}

// TestDrainWaitsForAllBefore checks that an operation with SQEDrain starts only after all
// earlier submissions have completed, including failed ones. Later submissions wait for it
// too; on Linux 6.1 they may overtake it at the end.
func TestDrainWaitsForAllBefore(t *testing.T) {
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		rd, wr := osPipe(t)
		push(t, r).PollAdd(fdOf(rd), pollIn).SetUserData(1)
		push(t, r).Close(unusedFD).SetUserData(2)
		push(t, r).Nop().SetFlags(uring.SQEDrain).SetUserData(3)
		push(t, r).Nop().SetUserData(4)
		push(t, r).Nop().SetFlags(uring.SQEDrain).SetUserData(5)
		wantErrno(t, await(t, r, 2), syscall.EBADF)
		if c := make([]uring.CQE, 4); r.Reap(c) != 0 {
			t.Fatalf("%+v ended before what it has to wait for", c[0])
		}
		write(t, wr, "x")
		var order []uint64
		for _, c := range ringtest.Await(t, r, 4) {
			order = append(order, c.UserData)
		}
		slices.Sort(order[1:3])
		if !slices.Equal(order, []uint64{1, 3, 4, 5}) {
			t.Errorf("completions came in the order %v", order)
		}
	})
}

// TestDrainDelaysCancellations checks that an entry cannot cancel an operation for which an
// operation with SQEDrain waits, and that SyncCancel can.
func TestDrainDelaysCancellations(t *testing.T) {
	ringtest.NeedKernel(t, "SYNC_CANCEL", "6.0")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		rd, _ := osPipe(t)
		push(t, r).PollAdd(fdOf(rd), pollIn).SetUserData(1)
		push(t, r).Close(unusedFD).SetUserData(2)
		push(t, r).Nop().SetFlags(uring.SQEDrain).SetUserData(3)
		push(t, r).Cancel(1).SetUserData(4)
		wantErrno(t, await(t, r, 2), syscall.EBADF)
		if c := make([]uring.CQE, 3); r.Reap(c) != 0 {
			t.Fatalf("%+v ended before what it has to wait for", c[0])
		}
		if _, err := r.SyncCancel(uring.CancelOptions{UserData: 1}, ringtest.Patience); err != nil {
			t.Fatal(err)
		}
		for _, c := range ringtest.Await(t, r, 3) {
			wantErrno(t, c, map[uint64]syscall.Errno{1: syscall.ECANCELED, 3: 0, 4: syscall.ENOENT}[c.UserData])
		}
	})
}

// TestSkippedSuccess asks for no completions of the successful part of a chain, and checks
// which completions of the failed part are posted.
func TestSkippedSuccess(t *testing.T) {
	ringtest.NeedKernel(t, "IOSQE_CQE_SKIP_SUCCESS", "5.17")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		if r.SQEntries() < 3 {
			r = ringtest.Open(t, &uring.Options{Entries: 4, CQEntries: 4})
		}
		const quiet = uring.SQELink | uring.SQESkipSuccess
		f := tempFile(t, "0123456789")
		buf := make([]byte, 4)
		keep(t, buf)
		push(t, r).Nop().SetFlags(quiet).SetUserData(1)
		push(t, r).Read(fdOf(f), buf, 0).SetFlags(quiet).SetUserData(2)
		push(t, r).Nop().SetUserData(3)
		wantRes(t, await(t, r, 3), 0)
		if string(buf) != "0123" {
			t.Errorf("read %q", buf)
		}
		wantQuiet(t, r)

		// The short read breaks the chain, and its completion is posted. The completions of
		// the operations cancelled behind it are posted only when the read did not ask to
		// skip its own.
		for _, flags := range []uring.SQEFlags{quiet, uring.SQELink} {
			push(t, r).Nop().SetFlags(quiet).SetUserData(1)
			push(t, r).Read(fdOf(f), buf, 8).SetFlags(flags).SetUserData(2)
			push(t, r).Nop().SetUserData(3)
			wantRes(t, await(t, r, 2), 2)
			if flags == uring.SQELink {
				wantErrno(t, await(t, r, 3), syscall.ECANCELED)
			}
			wantQuiet(t, r)
		}
	})
}

// TestMemoryOfASubmissionIsFree overwrites the memory that an entry points to, apart from
// the data, right after submission: the kernel has copied it. With SQPoll it has copied it
// only once the completion is there.
func TestMemoryOfASubmissionIsFree(t *testing.T) {
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		if r.SetupFlags()&uring.SetupSQPoll != 0 || r.Features()&uring.FeatSubmitStable == 0 {
			return
		}
		rd, wr := osPipe(t)
		f := tempFile(t, "0123456789")
		for _, fd := range []uring.FD{fdOf(rd), fdOf(f)} {
			// More parts than the kernel stores in the operation itself.
			const parts = 20
			bufs := make([]byte, parts)
			iov := make([]uring.Iovec, parts)
			for i := range iov {
				iov[i] = uring.NewIovec(bufs[i : i+1])
			}
			ts := new(uring.Timespec)
			*ts = uring.NewTimespec(ringtest.Patience)
			path, err := uring.NewPath(f.Name())
			ctlOK(t, "path", err)
			keep(t, bufs, iov, ts)
			push(t, r).Readv(fd, iov, 0, 0).SetFlags(uring.SQEAsync | uring.SQELink).SetUserData(1)
			push(t, r).LinkTimeout(ts, 0).SetUserData(2)
			push(t, r).OpenAt(uring.AtCWD, path, unix.O_RDONLY|unix.O_CLOEXEC, 0).SetFlags(uring.SQEAsync).SetUserData(3)
			_, err = r.Submit()
			ctlOK(t, "submit", err)
			clear(iov)
			*ts = uring.Timespec{}
			overwrite(path)
			write(t, wr, "0123456789")
			m := byUserData(t, r, 3)
			wantRes(t, m[1], 10)
			wantErrno(t, m[2], syscall.ECANCELED)
			if m[3].Res < 0 {
				t.Fatalf("open: %v", m[3].Err())
			}
			ctlClose(t, int(m[3].Res))
			if string(bufs[:10]) != "0123456789" {
				t.Errorf("read %q", bufs)
			}
		}
	})
}

// overwrite replaces the bytes of a path.
func overwrite(p uring.Path) {
	b := (*struct{ b []byte })(unsafe.Pointer(&p)).b
	for i := range b {
		b[i] = '!'
	}
}
