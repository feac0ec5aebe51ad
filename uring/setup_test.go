// SPDX-License-Identifier: MIT

package uring_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/ringtest"
	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/uring"
)

func init() {
	ledgerSetup(uring.SetupIOPoll, row{since: "5.1", uses: []string{"Options.IOPoll"}, kernel: kernelSetupIOPoll})
	ledgerSetup(uring.SetupSQPoll, row{since: "5.1", uses: []string{"Options.SQPoll", "Options.SQPollIdle", "Ring.WaitSQ"}, kernel: kernelSetupSQPoll})
	ledgerSetup(uring.SetupSQAff, row{since: "5.1", uses: []string{"Options.SQPollPinned", "Options.SQPollCPU"}, kernel: kernelSetupSQAff})
	ledgerSetup(uring.SetupCQSize, row{since: "5.5", uses: []string{"Options.CQEntries"}, kernel: kernelSetupCQSize})
	ledgerSetup(uring.SetupClamp, row{since: "5.6", uses: []string{"Options.Clamp"}, kernel: kernelSetupClamp})
	ledgerSetup(uring.SetupAttachWQ, row{since: "5.6", uses: []string{"Options.AttachWQ"}, kernel: kernelSetupAttachWQ})
	ledgerSetup(uring.SetupDisabled, row{since: "5.10", uses: []string{"Options.Disabled", "Ring.Enable"}, kernel: kernelSetupDisabled})
	ledgerSetup(uring.SetupSubmitAll, row{since: "5.18", uses: []string{"Options.SubmitAll"}, kernel: kernelSetupSubmitAll})
	ledgerSetup(uring.SetupCoopTaskrun, row{since: "5.19", uses: []string{"Options.CoopTaskrun"}, kernel: kernelSetupCoopTaskrun})
	ledgerSetup(uring.SetupTaskrunFlag, row{since: "5.19", uses: []string{"Options.TaskrunFlag", "Ring.SQFlags"}, kernel: kernelSetupTaskrunFlag})
	ledgerSetup(uring.SetupSQE128, row{since: "5.19", uses: []string{"Options.SQE128", "Ring.BigSQE"}, kernel: kernelSetupSQE128})
	ledgerSetup(uring.SetupCQE32, row{since: "5.19", uses: []string{"Options.CQE32", "Ring.ReapBig"}, kernel: kernelSetupCQE32})
	ledgerSetup(uring.SetupSingleIssuer, row{since: "6.0", uses: []string{"Options.SingleIssuer"}, kernel: kernelSetupSingleIssuer})
	ledgerSetup(uring.SetupDeferTaskrun, row{since: "6.1", uses: []string{"Options.DeferTaskrun"}, kernel: kernelSetupDeferTaskrun})
	ledgerSetup(uring.SetupNoMmap, row{since: "6.5", uses: []string{"Options.NoMmap", "Options.HugePages"}, kernel: kernelSetupNoMmap})
	ledgerSetup(uring.SetupRegisteredFDOnly, row{since: "6.5", uses: []string{"Options.RegisteredFDOnly"}, kernel: kernelSetupRegisteredFDOnly})
	ledgerSetup(uring.SetupNoSQArray, row{since: "6.6", uses: []string{"Options.NoSQArray"}, kernel: kernelSetupNoSQArray})
	ledgerSetup(uring.SetupHybridIOPoll, row{since: "6.13", uses: []string{"Options.HybridIOPoll"}, kernel: kernelSetupHybridIOPoll})
	ledgerSetup(uring.SetupCQEMixed, row{since: "6.18", uses: []string{"Options.CQEMixed", "Ring.ReapBig"}, kernel: kernelSetupCQEMixed})
}

// ctlRing opens a ring on a goroutine that stays on its thread until the test
// ends, as rings with an issuer need.
func ctlRing(t *testing.T, o uring.Options) *uring.Ring {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	return ringtest.Open(t, &o)
}

// ctlNext returns a free entry.
func ctlNext(t testing.TB, r *uring.Ring) *uring.SQE {
	t.Helper()
	e := r.SQE()
	if e == nil {
		t.Fatal("the submission queue is full")
	}
	return e
}

// ctlNops submits NOPs with the user data from first to last and returns when
// all of them are there, in order.
func ctlNops(t testing.TB, r *uring.Ring, first, last uint64) {
	t.Helper()
	for at := first; at <= last; {
		n := 0
		for ; at <= last && r.SQSpace() > 0; n++ {
			ctlNext(t, r).Nop().SetUserData(at)
			at++
		}
		got := ringtest.Await(t, r, n)
		for i, c := range got {
			if want := at - uint64(n-i); c.UserData != want || c.Res != 0 {
				t.Fatalf("completion %+v, want a NOP with user data %d", c, want)
			}
		}
	}
}

// ctlUntil waits until ok says yes.
func ctlUntil(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(ringtest.Patience); !ok(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, ringtest.Patience)
		}
	}
}

// ctlNewThreads returns the threads of that name which are not among before:
// those of an earlier ring may still be about to end.
func ctlNewThreads(t testing.TB, prefix string, before []int) []int {
	t.Helper()
	return slices.DeleteFunc(ctlThreads(t, prefix), func(tid int) bool { return slices.Contains(before, tid) })
}

// ctlErrno fails unless err is the errno.
func ctlErrno(t testing.TB, what string, err error, want syscall.Errno) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: error %v, want %v", what, err, want)
	}
}

func ctlOK(t testing.TB, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// ctlElsewhere runs f on another thread and waits for it.
func ctlElsewhere(f func()) {
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with f
		defer close(done)
		f()
	}()
	<-done
}

func kernelSetupIOPoll(t *testing.T) { testIOPoll(t, "IOPOLL", "5.1", uring.Options{IOPoll: true}) }
func kernelSetupHybridIOPoll(t *testing.T) {
	testIOPoll(t, "HYBRID_IOPOLL", "6.13", uring.Options{HybridIOPoll: true})
}

// testIOPoll finds what polling rings alone do: they refuse everything that
// cannot be polled for.
func testIOPoll(t *testing.T, name, since string, o uring.Options) {
	ringtest.NeedKernel(t, name, since)
	fd := ctlDirectFile(t, 'p')
	zero := ctlOpen(t, "/dev/zero", 0)
	r := ctlRing(t, o)
	buf := sys.AlignedBytes(4096, 4096)
	read := func(fd int) uring.CQE {
		return ringtest.Do(t, r, func(e *uring.SQE) { e.Read(uring.Fd(fd), buf, 0) })
	}
	if c := read(zero); c.Errno() != syscall.EOPNOTSUPP && c.Errno() != syscall.EINVAL {
		t.Errorf("a read without O_DIRECT: %+v, want EOPNOTSUPP or EINVAL", c)
	}
	if c := ringtest.Do(t, r, func(e *uring.SQE) { e.PollAdd(uring.Fd(zero), 1) }); c.Errno() != syscall.EINVAL {
		t.Errorf("a poll: %+v, want EINVAL", c)
	}
	switch c := read(fd); {
	case c.Errno() == syscall.EOPNOTSUPP:
		t.Log("the device has no poll queues")
	case c.Res != 4096 || buf[0] != 'p' || buf[4095] != 'p':
		t.Errorf("a direct read: %+v, data %q", c, buf[:8])
	}
	runtime.KeepAlive(buf)
}

func kernelSetupSQPoll(t *testing.T) {
	ringtest.NeedKernel(t, "SQPOLL without privileges", "5.13")
	before := ctlThreads(t, "iou-sqp-")
	r := ctlRing(t, uring.Options{Entries: 8, SQPoll: true, SQPollIdle: 50 * time.Millisecond})
	ctlNops(t, r, 1, 1) // a thread takes its name when it begins to run
	if n := len(ctlNewThreads(t, "iou-sqp-", before)); n != 1 {
		t.Errorf("%d submission threads, want 1", n)
	}
	asleep := func() bool { return r.SQFlags()&uring.SQNeedWakeup != 0 }
	// While the thread is awake nobody enters the kernel. It may fall asleep
	// between two looks at it, so this can take more than one attempt.
	ctlUntil(t, "a submission without entering", func() bool {
		ctlNops(t, r, 1, 2) // wakes the thread
		awake := !asleep()
		ctlNext(t, r).Nop().SetUserData(3)
		flushes := r.CQFlushes()
		n, err := r.Submit()
		if n != 1 || err != nil {
			t.Fatalf("submit: %d, %v", n, err)
		}
		for awake && r.Ready() == 0 && !asleep() {
			runtime.Gosched()
		}
		got := ringtest.Await(t, r, 1)
		return awake && got[0].UserData == 3 && r.CQFlushes() == flushes
	})
	for range 3 {
		ctlUntil(t, "the thread sleeps", asleep)
		ctlNext(t, r).Nop().SetUserData(4)
		if n, err := r.Submit(); n != 1 || err != nil {
			t.Fatalf("submit to a sleeping thread: %d, %v", n, err)
		}
		ctlUntil(t, "the completion", func() bool { return r.Ready() == 1 })
		if got := ringtest.Await(t, r, 1); got[0].UserData != 4 {
			t.Fatalf("completion %+v", got[0])
		}
	}
	ctlUntil(t, "the thread sleeps", asleep)
	if n, err := r.Submit(); n != 0 || err != nil || !asleep() {
		t.Errorf("nothing to submit: %d, %v, asleep %v; want 0 and a thread left in peace", n, err, asleep())
	}
}

func kernelSetupSQAff(t *testing.T) {
	ringtest.NeedKernel(t, "SQPOLL without privileges", "5.13")
	before := ctlThreads(t, "iou-sqp-")
	for _, cpu := range ctlCPUs(t, 0) {
		r := ctlRing(t, uring.Options{SQPoll: true, SQPollPinned: true, SQPollCPU: uint32(cpu)})
		ctlNops(t, r, 1, 3)
		tids := ctlNewThreads(t, "iou-sqp-", before)
		if len(tids) != 1 {
			t.Fatalf("%d new submission threads", len(tids))
		}
		if got := ctlCPUs(t, tids[0]); !slices.Equal(got, []int{cpu}) {
			t.Errorf("the thread runs on %v, want %d", got, cpu)
		}
		ctlOK(t, "close", r.Close())
		ctlUntil(t, "the thread ends", func() bool { return !slices.Contains(ctlThreads(t, "iou-sqp-"), tids[0]) })
	}
	_, err := uring.Open(&uring.Options{SQPoll: true, SQPollPinned: true, SQPollCPU: 1 << 20})
	ctlErrno(t, "a processor that does not exist", err, syscall.EINVAL)
}

func kernelSetupCQSize(t *testing.T) {
	ringtest.NeedKernel(t, "CQSIZE", "5.5")
	r := ctlRing(t, uring.Options{Entries: 4, CQEntries: 60})
	if r.SQEntries() != 4 || r.CQEntries() != 64 {
		t.Fatalf("queues of %d and %d entries, want 4 and 64", r.SQEntries(), r.CQEntries())
	}
	for range 16 {
		for range 4 {
			ctlNext(t, r).Nop()
		}
		if n, err := r.Submit(); n != 4 || err != nil {
			t.Fatalf("submit: %d, %v", n, err)
		}
	}
	if r.Ready() != 64 || r.SQFlags()&uring.SQCQOverflow != 0 {
		t.Errorf("%d completions, SQ flags %#x: want 64 without an overflow", r.Ready(), r.SQFlags())
	}
	if d := ctlRing(t, uring.Options{Entries: 4}); d.CQEntries() != 8 {
		t.Errorf("a CQ of %d entries by default, want 8", d.CQEntries())
	}
}

func kernelSetupClamp(t *testing.T) {
	ringtest.NeedKernel(t, "CLAMP", "5.6")
	for _, o := range []uring.Options{{Entries: 1 << 20}, {Entries: 8, CQEntries: 1 << 20}} {
		_, err := uring.Open(&o)
		ctlErrno(t, fmt.Sprintf("%d and %d entries", o.Entries, o.CQEntries), err, syscall.EINVAL)
		o.Clamp = true
		r := ctlRing(t, o)
		if n := r.SQEntries(); o.Entries > 8 && n != 1<<15 {
			t.Errorf("%d SQ entries clamped to %d", o.Entries, n)
		}
		if n := r.CQEntries(); n != 1<<16 {
			t.Errorf("%d CQ entries clamped to %d", o.CQEntries, n)
		}
		ctlNops(t, r, 1, 100)
		ctlOK(t, "close", r.Close())
	}
}

// kernelSetupAttachWQ counts the threads that submit: two rings that are attached
// have one.
func kernelSetupAttachWQ(t *testing.T) {
	ringtest.NeedKernel(t, "SQPOLL without privileges", "5.13")
	before := ctlThreads(t, "iou-sqp-")
	want := func(r *uring.Ring, n int) {
		t.Helper()
		ctlNops(t, r, 1, 5) // a thread takes its name when it begins to run
		if got := len(ctlNewThreads(t, "iou-sqp-", before)); got != n {
			t.Errorf("%d submission threads, want %d", got, n)
		}
	}
	first := ctlRing(t, uring.Options{SQPoll: true})
	want(first, 1)
	want(ctlRing(t, uring.Options{SQPoll: true, AttachWQ: first}), 1)
	want(ctlRing(t, uring.Options{SQPoll: true}), 2)
	plain := ctlRing(t, uring.Options{})
	ctlNops(t, ctlRing(t, uring.Options{AttachWQ: plain}), 1, 5)

	ctlOK(t, "close", plain.Close())
	if _, err := uring.Open(&uring.Options{AttachWQ: plain}); err == nil {
		t.Error("attached to a closed ring")
	}
}

func kernelSetupDisabled(t *testing.T) {
	ringtest.NeedKernel(t, "R_DISABLED", "5.10")
	for _, o := range []uring.Options{{}, {SQPoll: true}} {
		o.Disabled = true
		r := ctlRing(t, o)
		ctlNext(t, r).Nop().SetUserData(1)
		_, err := r.Submit()
		ctlErrno(t, "submit", err, ctlEBADFD)
		_, err = r.SubmitAndWait(1)
		ctlErrno(t, "submit and wait", err, ctlEBADFD)
		if r.SetupFlags()&uring.SetupDisabled == 0 || r.Pending() != 1 {
			t.Errorf("flags %#x, %d entries pending", r.SetupFlags(), r.Pending())
		}
		ctlOK(t, "enable", r.Enable())
		if c := ringtest.Await(t, r, 1)[0]; c.UserData != 1 {
			t.Errorf("completion %+v", c)
		}
		if r.SetupFlags()&uring.SetupDisabled != 0 {
			t.Error("an enabled ring shows R_DISABLED")
		}
		ctlErrno(t, "enable twice", r.Enable(), ctlEBADFD)
	}
}

// kernelSetupSubmitAll puts an entry that the kernel rejects before one that it
// takes.
func kernelSetupSubmitAll(t *testing.T) {
	ringtest.NeedKernel(t, "SUBMIT_ALL", "5.18")
	for _, all := range []bool{false, true} {
		r := ctlRing(t, uring.Options{SubmitAll: all})
		bad := ctlNext(t, r).Nop().SetUserData(1)
		bad.Raw().Opcode = 0xff
		ctlNext(t, r).Nop().SetUserData(2)
		n, err := r.Submit()
		if want := map[bool]int{false: 1, true: 2}[all]; n != want || err != nil || r.Pending() != 2-want {
			t.Fatalf("SubmitAll %v: submitted %d, %v, %d pending; want %d", all, n, err, r.Pending(), want)
		}
		got := ringtest.Await(t, r, 2)
		if got[0].UserData != 1 || got[0].Errno() != syscall.EINVAL || got[1].UserData != 2 || got[1].Res != 0 {
			t.Errorf("SubmitAll %v: completions %+v", all, got)
		}
	}
}

// ctlTaskWork makes an operation of r complete through task work, caused by
// another thread while this one runs without entering the kernel, and says
// whether the kernel showed the flag while the completion was not yet there.
func ctlTaskWork(t *testing.T, r *uring.Ring, rd, wr int) (flagged bool) {
	t.Helper()
	ctlNext(t, r).PollAdd(uring.Fd(rd), 1).SetUserData(9)
	ctlSubmit(t, r, 1)
	var ready, written atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !ready.Load() {
			runtime.Gosched()
		}
		ctlWrite(t, wr, []byte{1})
		written.Store(true)
	}()
	ready.Store(true)
	for !written.Load() { // no system call here
	}
	flagged = r.SQFlags()&uring.SQTaskrun != 0 && r.Ready() == 0
	<-done
	if c := ringtest.Await(t, r, 1)[0]; c.UserData != 9 || c.Res != 1 {
		t.Fatalf("completion %+v", c)
	}
	buf := make([]byte, 1)
	if c := ringtest.Do(t, r, func(e *uring.SQE) { e.Read(uring.Fd(rd), buf, 0) }); c.Res != 1 {
		t.Fatalf("read: %+v (%v)", c, c.Err())
	}
	runtime.KeepAlive(buf)
	return flagged
}

// kernelSetupCoopTaskrun finds a completion that waits for its submitter, which
// never happens without the flag. The kernel and the runtime interrupt threads
// on their own account, so it need not happen at the first attempt.
func kernelSetupCoopTaskrun(t *testing.T) {
	ringtest.NeedKernel(t, "COOP_TASKRUN", "5.19")
	rd, wr := ctlPipe(t)
	plain := ctlRing(t, uring.Options{})
	for range 20 {
		if ctlTaskWork(t, plain, rd, wr) {
			t.Fatal("a completion waited for the submitter of a plain ring")
		}
	}
	coop := ctlRing(t, uring.Options{CoopTaskrun: true, TaskrunFlag: true})
	if len(ctlCPUs(t, 0)) == 1 || runtime.GOMAXPROCS(0) == 1 {
		ctlTaskWork(t, coop, rd, wr)
		t.Skip("needs two processors, to run while another thread causes a completion")
	}
	ctlUntil(t, "a completion that waits for the submitter", func() bool { return ctlTaskWork(t, coop, rd, wr) })
	if coop.SQFlags()&uring.SQTaskrun != 0 {
		t.Error("the flag stays after the completion")
	}
}

// kernelSetupTaskrunFlag finds that Reap fetches waiting completions thanks to
// the flag, and that nothing shows it when it was not asked for.
func kernelSetupTaskrunFlag(t *testing.T) {
	ringtest.NeedKernel(t, "TASKRUN_FLAG", "5.19")
	rd, wr := ctlPipe(t)
	coop := ctlRing(t, uring.Options{CoopTaskrun: true})
	for range 20 {
		if ctlTaskWork(t, coop, rd, wr) {
			t.Fatal("a ring without TASKRUN_FLAG shows it")
		}
	}
	r := ctlRing(t, uring.Options{CoopTaskrun: true, TaskrunFlag: true})
	ctlNext(t, r).PollAdd(uring.Fd(rd), 1)
	ctlSubmit(t, r, 1)
	ctlElsewhere(func() { ctlWrite(t, wr, []byte{1}) })
	var dst [1]uring.CQE
	ctlUntil(t, "Reap alone brings the completion", func() bool { return r.Reap(dst[:]) == 1 })
}

// ctlSubmit submits and fails unless the kernel takes n entries.
func ctlSubmit(t testing.TB, r *uring.Ring, n int) {
	t.Helper()
	if got, err := r.Submit(); got != n || err != nil {
		t.Fatalf("submit: %d, %v; want %d", got, err, n)
	}
}

func kernelSetupSQE128(t *testing.T) {
	ringtest.NeedKernel(t, "SQE128", "5.19")
	r := ctlRing(t, uring.Options{Entries: 4, SQE128: true})
	for at := uint64(1); at <= 20; at += 4 {
		for i := range uint64(4) {
			b := r.BigSQE()
			if b == nil {
				t.Fatal("no entry")
			}
			b.SQE().Nop().SetUserData(at + i)
			// What a 64-byte stride would take for an entry is not one.
			for j := range b.Cmd() {
				b.Cmd()[j] = 0xff
			}
			if len(b.Cmd()) != 80 {
				t.Fatalf("%d bytes of command", len(b.Cmd()))
			}
			b.SQE().Nop().SetUserData(at + i)
		}
		if r.BigSQE() != nil || r.SQE() != nil {
			t.Fatal("a full queue hands out an entry")
		}
		for i, c := range ringtest.Await(t, r, 4) {
			if c.UserData != at+uint64(i) || c.Res != 0 {
				t.Fatalf("completion %+v, want user data %d", c, at+uint64(i))
			}
		}
	}
	b := r.BigSQE()
	b.SQE().Nop()
	if slices.ContainsFunc(b.Cmd()[16:], func(x byte) bool { return x != 0 }) {
		t.Error("an entry keeps command data of an earlier one")
	}
	ringtest.Await(t, r, 1)
	if ctlRing(t, uring.Options{}).BigSQE() != nil {
		t.Error("a ring with 64-byte entries has a BigSQE")
	}
}

func kernelSetupCQE32(t *testing.T) {
	ringtest.NeedKernel(t, "CQE32", "5.19")
	r := ctlRing(t, uring.Options{Entries: 4, CQEntries: 4, CQE32: true})
	ctlNops(t, r, 1, 50)
	t.Run("values", func(t *testing.T) {
		ringtest.NeedKernel(t, "NOP with a 32-byte completion", "6.18")
		for at := uint64(1); at < 30; at += 3 {
			for i := at; i < at+3; i++ {
				ctlNext(t, r).NopWith(uring.NopOptions{Big: true, BigValues: [2]uint64{i << 40, ^i}}).SetUserData(i)
			}
			_, err := r.SubmitAndWait(3)
			ctlOK(t, "submit", err)
			var dst [4]uring.BigCQE
			if n := r.ReapBig(dst[:]); n != 3 {
				t.Fatalf("%d completions, want 3", n)
			}
			for i, c := range dst[:3] {
				u := at + uint64(i)
				if c.UserData != u || c.Res != 0 || c.Big != [2]uint64{u << 40, ^u} {
					t.Fatalf("completion %+v, want number %d", c, u)
				}
			}
		}
	})
	small := ctlRing(t, uring.Options{})
	ctlNext(t, small).Nop().SetUserData(5)
	ctlSubmit(t, small, 1)
	var dst [2]uring.BigCQE
	if n := small.ReapBig(dst[:]); n != 1 || dst[0].UserData != 5 || dst[0].Big != [2]uint64{} {
		t.Errorf("ReapBig on a ring with 16-byte completions: %d, %+v", n, dst[0])
	}
}

func kernelSetupCQEMixed(t *testing.T) {
	ringtest.NeedKernel(t, "CQE_MIXED", "6.18")
	r := ctlRing(t, uring.Options{Entries: 4, CQEntries: 8, CQEMixed: true})
	rnd := rand.New(rand.NewPCG(1, 2))
	fillers := 0
	for at, round := uint64(1), 0; round < 500; round++ {
		n := 1 + rnd.IntN(3)
		places, big := 0, make([]bool, n)
		for i := range n {
			e := ctlNext(t, r)
			if big[i] = rnd.IntN(2) == 0; big[i] {
				e.NopWith(uring.NopOptions{Big: true, BigValues: [2]uint64{at + uint64(i), 1 << 63}})
				places++
			} else {
				e.Nop()
			}
			places++
			e.SetUserData(at + uint64(i))
		}
		ctlSubmit(t, r, n)
		fillers += r.Ready() - places
		for i, c := range ctlReapMixed(t, r, n, round%2 == 0) {
			u := at + uint64(i)
			want := uring.BigCQE{CQE: uring.CQE{UserData: u}}
			if big[i] {
				want.Flags = uint32(uring.CQE32)
				if round%2 == 0 {
					want.Big = [2]uint64{u, 1 << 63}
				}
			}
			if c != want {
				t.Fatalf("round %d: completion %+v, want %+v", round, c, want)
			}
		}
		at += uint64(n)
	}
	if fillers == 0 {
		t.Error("no completion ever met the end of the queue")
	}
}

// ctlReapMixed reaps n completions one or three at a time, with or without
// their second halves, and finds that there are no more.
func ctlReapMixed(t *testing.T, r *uring.Ring, n int, big bool) []uring.BigCQE {
	t.Helper()
	var got []uring.BigCQE
	for {
		var small [3]uring.CQE
		var dst [3]uring.BigCQE
		k := 0
		if big {
			k = r.ReapBig(dst[:1])
		} else {
			k = r.Reap(small[:])
			for i, c := range small[:k] {
				dst[i].CQE = c
			}
		}
		if got = append(got, dst[:k]...); k == 0 {
			break
		}
	}
	if len(got) != n || r.Ready() != 0 {
		t.Fatalf("%d completions and %d places left, want %d and 0", len(got), r.Ready(), n)
	}
	return got
}

func kernelSetupSingleIssuer(t *testing.T) {
	ringtest.NeedKernel(t, "SINGLE_ISSUER", "6.0")
	elsewhere := func(r *uring.Ring) (submit, register error) {
		ctlNext(t, r).Nop()
		ctlElsewhere(func() {
			_, submit = r.Submit()
			_, register = r.Probe()
		})
		ringtest.Await(t, r, 1)
		return submit, register
	}
	submit, register := elsewhere(ctlRing(t, uring.Options{SingleIssuer: true}))
	ctlErrno(t, "submit on another thread", submit, syscall.EEXIST)
	ctlErrno(t, "register on another thread", register, syscall.EEXIST)
	submit, register = elsewhere(ctlRing(t, uring.Options{}))
	ctlOK(t, "submit on another thread", submit)
	ctlOK(t, "register on another thread", register)

	// A disabled ring belongs to the thread that enables it.
	r := ctlRing(t, uring.Options{SingleIssuer: true, Disabled: true})
	ctlElsewhere(func() {
		ctlOK(t, "enable", r.Enable())
		ctlNops(t, r, 1, 3)
	})
	ctlNext(t, r).Nop()
	_, err := r.Submit()
	ctlErrno(t, "submit on the thread that opened the ring", err, syscall.EEXIST)
}

func kernelSetupDeferTaskrun(t *testing.T) {
	ringtest.NeedKernel(t, "DEFER_TASKRUN", "6.1")
	r := ctlRing(t, uring.Options{DeferTaskrun: true})
	if want := uring.SetupSingleIssuer | uring.SetupTaskrunFlag; r.SetupFlags()&want != want {
		t.Errorf("setup flags %#x", r.SetupFlags())
	}
	rd, wr := ctlPipe(t)
	for range 20 {
		if !ctlTaskWork(t, r, rd, wr) {
			t.Fatal("a completion arrived outside of a wait")
		}
	}
	// Entering the kernel for something else does not deliver either; Reap does.
	ctlNext(t, r).PollAdd(uring.Fd(rd), 1).SetUserData(1)
	ctlSubmit(t, r, 1)
	ctlWrite(t, wr, []byte{1})
	ctlNext(t, r).Nop().SetUserData(2)
	ctlSubmit(t, r, 1)
	if r.Ready() != 1 {
		t.Errorf("%d completions before Reap, want the NOP's", r.Ready())
	}
	var dst [4]uring.CQE
	if n := r.Reap(dst[:]); n != 2 || dst[0].UserData != 2 || dst[1].UserData != 1 {
		t.Errorf("Reap: %d, %+v", n, dst[:n])
	}
	ctlElsewhere(func() {
		_, err := r.Wait(uring.WaitOptions{NoSubmit: true})
		ctlErrno(t, "a wait on another thread", err, syscall.EEXIST)
	})
}

func kernelSetupNoMmap(t *testing.T) {
	ringtest.NeedKernel(t, "NO_MMAP", "6.5")
	before := len(ctlRingMappings(t))
	r := ctlRing(t, uring.Options{Entries: 16, NoMmap: true})
	if n := len(ctlRingMappings(t)); n != before {
		t.Errorf("%d mappings of the ring, want none", n-before)
	}
	ctlNops(t, r, 1, 100)
	ctlOK(t, "close", r.Close())

	plain := ctlRing(t, uring.Options{Entries: 16})
	if n := len(ctlRingMappings(t)); n != before+2 {
		t.Errorf("%d mappings of an ordinary ring, want 2", n-before)
	}
	ctlOK(t, "close", plain.Close())
	for _, o := range []uring.Options{
		{Entries: 8, CQEntries: 64}, {Entries: 8, SQE128: true}, {Entries: 8, CQE32: true}, {Entries: 8, SQPoll: true},
	} {
		o.NoMmap = true
		r := ctlRing(t, o)
		ctlNops(t, r, 1, 200)
		ctlOK(t, "close", r.Close())
	}
	_, err := uring.Open(&uring.Options{Entries: 1 << 20, NoMmap: true})
	ctlErrno(t, "too many entries", err, syscall.EINVAL)

	t.Run("large", func(t *testing.T) {
		ringtest.NeedKernel(t, "NO_MMAP of more than a page", "6.10")
		r := ctlRing(t, uring.Options{Entries: 1 << 20, NoMmap: true, Clamp: true})
		if r.SQEntries() != 1<<15 || r.CQEntries() != 1<<16 {
			t.Errorf("queues of %d and %d entries", r.SQEntries(), r.CQEntries())
		}
		ctlNops(t, r, 1, 1<<16+5)
	})
	t.Run("huge pages", func(t *testing.T) {
		if !ctlHugePages(t, 2) {
			_, err := uring.Open(&uring.Options{HugePages: true})
			ctlErrno(t, "huge pages that are not there", err, syscall.ENOMEM)
			t.Skip("needs two free huge pages (vm.nr_hugepages)")
		}
		r := ctlRing(t, uring.Options{Entries: 1024, HugePages: true})
		ctlNops(t, r, 1, 3000)
	})
}

func kernelSetupRegisteredFDOnly(t *testing.T) {
	ringtest.NeedKernel(t, "REGISTERED_FD_ONLY", "6.5")
	before := ctlDescriptors(t)
	for range 40 { // a thread has room for 16
		r := ctlRing(t, uring.Options{Entries: 8, RegisteredFDOnly: true})
		if r.FD() != -1 || ctlDescriptors(t) != before {
			t.Fatalf("descriptor %d, %d descriptors open, want %d", r.FD(), ctlDescriptors(t), before)
		}
		ctlNops(t, r, 1, 20)
		if ops, err := r.Probe(); err != nil || !ops.Has(uring.OpNop) {
			t.Fatalf("probe: %v", err)
		}
		ctlOK(t, "close", r.Close())
	}
	r := ctlRing(t, uring.Options{Entries: 8, RegisteredFDOnly: true})
	ctlElsewhere(func() {
		ctlNext(t, r).Nop()
		if _, err := r.Submit(); err == nil {
			t.Error("another thread submitted")
		}
	})
	ringtest.Await(t, r, 1)
}

func kernelSetupNoSQArray(t *testing.T) {
	ringtest.NeedKernel(t, "NO_SQARRAY", "6.6")
	// The array takes four pages of 4 KiB.
	rings := func(o uring.Options) int {
		old := ctlRingMappings(t)
		r := ctlRing(t, o)
		size := 0
		for _, n := range ctlRingMappings(t) {
			size += n
		}
		for _, n := range old {
			size -= n
		}
		ctlNops(t, r, 1, 10000)
		ctlOK(t, "close", r.Close())
		return size
	}
	with := rings(uring.Options{Entries: 4096, CQEntries: 4096})
	without := rings(uring.Options{Entries: 4096, CQEntries: 4096, NoSQArray: true})
	if with-without < 4*4096-4096 {
		t.Errorf("the ring takes %d bytes, %d without the array", with, without)
	}
}

func TestSetupFlagsErrors(t *testing.T) {
	for name, o := range map[string]uring.Options{
		"pinned without SQPoll":      {SQPollPinned: true},
		"SQPoll and CoopTaskrun":     {SQPoll: true, CoopTaskrun: true},
		"SQPoll and DeferTaskrun":    {SQPoll: true, DeferTaskrun: true},
		"SQPoll and TaskrunFlag":     {SQPoll: true, TaskrunFlag: true},
		"TaskrunFlag alone":          {TaskrunFlag: true},
		"both sizes of completions":  {CQE32: true, CQEMixed: true},
		"CQ smaller than SQ":         {Entries: 16, CQEntries: 8},
		"CQ smaller than default SQ": {CQEntries: 8},
		"negative idle time":         {SQPoll: true, SQPollIdle: -1},
		"attached to no descriptor":  {AttachWQ: new(uring.Ring)},
	} {
		if _, err := o.SetupFlags(); err == nil {
			t.Errorf("%s: accepted", name)
		} else if _, open := uring.Open(&o); open == nil || open.Error() != err.Error() {
			t.Errorf("%s: Open says %v, SetupFlags %v", name, open, err)
		}
	}
}

func TestSetupFlagsDerived(t *testing.T) {
	for _, test := range []struct {
		o    uring.Options
		want uring.SetupFlags
	}{
		{uring.Options{}, 0},
		{uring.Options{HybridIOPoll: true}, uring.SetupHybridIOPoll | uring.SetupIOPoll},
		{uring.Options{DeferTaskrun: true}, uring.SetupDeferTaskrun | uring.SetupSingleIssuer | uring.SetupTaskrunFlag},
		{uring.Options{HugePages: true}, uring.SetupNoMmap},
		{uring.Options{RegisteredFDOnly: true}, uring.SetupRegisteredFDOnly | uring.SetupNoMmap},
		{uring.Options{CQEntries: 256}, uring.SetupCQSize},
		{uring.Options{Entries: 5, CQEntries: 7}, uring.SetupCQSize}, // both round up to 8
	} {
		if got, err := test.o.SetupFlags(); got != test.want || err != nil {
			t.Errorf("%+v: flags %#x, %v; want %#x", test.o, got, err, test.want)
		}
	}
}

// TestClose closes rings in every state, over and over: descriptors and the 16
// registered indices of a thread must not run out.
func TestClose(t *testing.T) {
	ringtest.NeedRing(t)
	before := ctlDescriptors(t)
	for range 40 {
		r := ctlRing(t, uring.Options{})
		ctlOK(t, "register the ring", r.RegisterRingFD())
		ctlNops(t, r, 1, 3)
		ctlOK(t, "close", r.Close())
		ctlOK(t, "close twice", r.Close())
	}
	if n := ctlDescriptors(t); n != before {
		t.Errorf("%d descriptors open, want %d", n, before)
	}
	r := ctlRing(t, uring.Options{})
	ctlOK(t, "close", r.Close())
	if r.SQE() != nil || r.BigSQE() != nil || r.SQSpace() != 0 || r.Pending() != 0 || r.Ready() != 0 || r.FD() != -1 {
		t.Error("a closed ring has entries")
	}
	if n := r.Reap(make([]uring.CQE, 4)); n != 0 {
		t.Errorf("a closed ring has %d completions", n)
	}
	if n, err := r.Submit(); n != 0 || err != nil {
		t.Errorf("submit nothing to a closed ring: %d, %v", n, err)
	}
	_, err := r.SubmitAndWait(1)
	ctlErrno(t, "wait on a closed ring", err, syscall.EBADF)
	_, err = r.Probe()
	ctlErrno(t, "probe a closed ring", err, syscall.EBADF)
	_, err = r.NewBufRing(uring.BufRingOptions{Entries: 1, BufSize: 1})
	ctlErrno(t, "buffer ring of a closed ring", err, syscall.EBADF)
}

// TestCloseElsewhere closes a ring whose registered index belongs to another
// thread. The index of a second ring, which has the same number on the closing
// thread, must survive.
func TestCloseElsewhere(t *testing.T) {
	ringtest.NeedKernel(t, "registered ring descriptors", "5.18")
	r := ctlRing(t, uring.Options{})
	ctlOK(t, "register the ring", r.RegisterRingFD())
	ctlElsewhere(func() {
		other, err := uring.Open(nil)
		ctlOK(t, "open", err)
		ctlOK(t, "register the ring", other.RegisterRingFD())
		if r.UnregisterRingFD() == nil || r.Close() == nil {
			t.Error("another thread closed the ring without a word")
		}
		ctlNops(t, other, 1, 3)
		ctlOK(t, "close", other.Close())
	})
	if err := r.Close(); err != nil && ctlHasKernel(t, "6.3") {
		t.Errorf("close the rest: %v", err)
	}
}
