// SPDX-License-Identifier: MIT

package uring_test

import (
	"encoding/binary"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

const (
	futexPrivate = 128
	futexAny     = 0xffffffff
)

func init() {
	ledgerOp(uring.OpFutexWait, row{
		since:   "6.7",
		uses:    []string{"SQE.FutexWait"},
		goldens: futexWaitGoldens,
		kernel: func(t *testing.T) {
			ringtest.NeedOp(t, uring.OpFutexWait, "6.7")
			ringtest.OverFlavours(t, kernelFutexWait)
		},
	})
	ledgerOp(uring.OpFutexWake, row{
		since:   "6.7",
		uses:    []string{"SQE.FutexWake"},
		goldens: futexWakeGoldens,
		kernel: func(t *testing.T) {
			ringtest.NeedOp(t, uring.OpFutexWake, "6.7")
			ringtest.OverFlavours(t, kernelFutexWake)
		},
	})
	ledgerOp(uring.OpFutexWaitv, row{
		since:   "6.7",
		uses:    []string{"SQE.FutexWaitv", "NewFutexWaitv"},
		goldens: futexWaitvGoldens,
		kernel: func(t *testing.T) {
			ringtest.NeedOp(t, uring.OpFutexWaitv, "6.7")
			ringtest.OverFlavours(t, kernelFutexWaitv)
		},
	})
	ledgerOp(uring.OpWaitID, row{
		since:   "6.7",
		uses:    []string{"SQE.WaitID", "Siginfo.Signo", "Siginfo.Code", "Siginfo.PID", "Siginfo.UID", "Siginfo.Status"},
		goldens: waitIDGoldens,
		kernel: func(t *testing.T) {
			ringtest.NeedOp(t, uring.OpWaitID, "6.7")
			ringtest.OverFlavours(t, kernelWaitID)
		},
	})
}

var (
	goldenWord     = new(atomic.Uint32)
	goldenWordAddr = addressOf(goldenWord)
	goldenFutexes  = []uring.FutexWaitv{
		uring.NewFutexWaitv(goldenWord, 5, futexPrivate), uring.NewFutexWaitv(goldenWord, 6, 0),
	}
	goldenSiginfo = new(uring.Siginfo)
)

// The flags of a futex are in fd; 2 means a size of 32 bits.
var futexWaitGoldens = []golden{
	{"private", func(e *uring.SQE) { e.FutexWait(goldenWord, 0xfffffffe, futexAny, futexPrivate) },
		abi.SQE{Opcode: 51, Fd: 128 | 2, Off: 0xfffffffe, Addr: goldenWordAddr, Addr3: 0xffffffff}},
	{"shared", func(e *uring.SQE) { e.FutexWait(goldenWord, 1, 6, 0) },
		abi.SQE{Opcode: 51, Fd: 2, Off: 1, Addr: goldenWordAddr, Addr3: 6}},
}

var futexWakeGoldens = []golden{
	{"private", func(e *uring.SQE) { e.FutexWake(goldenWord, 3, futexAny, futexPrivate) },
		abi.SQE{Opcode: 52, Fd: 128 | 2, Off: 3, Addr: goldenWordAddr, Addr3: 0xffffffff}},
	{"shared", func(e *uring.SQE) { e.FutexWake(goldenWord, 1, 6, 0) },
		abi.SQE{Opcode: 52, Fd: 2, Off: 1, Addr: goldenWordAddr, Addr3: 6}},
}

var futexWaitvGoldens = []golden{
	{"two", func(e *uring.SQE) { e.FutexWaitv(goldenFutexes) },
		abi.SQE{Opcode: 53, Addr: addressOf(&goldenFutexes[0]), Len: 2}},
	{"none", func(e *uring.SQE) { e.FutexWaitv(nil) },
		abi.SQE{Opcode: 53}},
}

var waitIDGoldens = []golden{
	{"pid", func(e *uring.SQE) { e.WaitID(1, 4711, goldenSiginfo, 4) },
		abi.SQE{Opcode: 50, Fd: 4711, Off: addressOf(goldenSiginfo), Len: 1, FileIndex: 4}},
	{"no info", func(e *uring.SQE) { e.WaitID(3, 7, nil, 4|0x01000000) },
		abi.SQE{Opcode: 50, Fd: 7, Len: 3, FileIndex: 0x01000004}},
}

func TestFutexWaitvLayout(t *testing.T) {
	want := make([]byte, 24)
	binary.NativeEndian.PutUint64(want[0:], 5)
	binary.NativeEndian.PutUint64(want[8:], goldenWordAddr)
	binary.NativeEndian.PutUint32(want[16:], 128|2)
	got := unsafe.Slice((*byte)(unsafe.Pointer(&goldenFutexes[0])), unsafe.Sizeof(goldenFutexes[0]))
	if string(got) != string(want) {
		t.Errorf("struct futex_waitv is\n%x, want\n%x", got, want)
	}
}

func kernelFutexWait(t *testing.T, r *uring.Ring) {
	word := new(atomic.Uint32)
	keep(t, word)
	word.Store(5)
	wait := func(val uint32, mask uint64) {
		push(t, r).FutexWait(word, val, mask, futexPrivate).SetUserData(1)
	}
	wait(4, futexAny)
	wantErrno(t, await(t, r, 1), syscall.EAGAIN)
	for _, mask := range []uint64{0, 1 << 32, minusOne} {
		wait(5, mask)
		wantErrno(t, await(t, r, 1), syscall.EINVAL)
	}
	wait(5, futexAny)
	wantQuiet(t, r)
	word.Store(6)
	other := ringtest.Open(t, &uring.Options{Entries: 1})
	wantRes(t, ringtest.Do(t, other, func(e *uring.SQE) { e.FutexWake(word, 1, futexAny, futexPrivate) }), 1)
	wantRes(t, await(t, r, 1), 0)

	wait(6, futexAny)
	wantQuiet(t, r)
	push(t, r).Cancel(1).SetUserData(2)
	m := byUserData(t, r, 2)
	wantErrno(t, m[1], syscall.ECANCELED)
	if c := m[2]; c.Res != 0 && c.Res != 1 {
		t.Errorf("cancel: %+v (%v)", c, c.Err())
	}
}

func kernelFutexWake(t *testing.T, r *uring.Ring) {
	word := new(atomic.Uint32)
	keep(t, word)
	// One at a time, so that the smallest CQ can hold the completions of the waiters.
	wait := func(userData, mask uint64) {
		push(t, r).FutexWait(word, 0, mask, futexPrivate).SetUserData(userData)
		wantQuiet(t, r)
	}
	wake := func(n int, mask uint64, flags uint32) uring.CQE {
		push(t, r).FutexWake(word, n, mask, flags).SetUserData(9)
		for {
			c := ringtest.Await(t, r, 1)[0]
			if c.UserData == 9 {
				return c
			}
			wantRes(t, c, 0) // the kernel had already woken the waiter
		}
	}
	wantRes(t, wake(1, futexAny, futexPrivate), 0)
	wait(1, 1)
	wait(2, 2)
	wait(3, 2)
	wantRes(t, wake(9, 4, futexPrivate), 0)
	wantRes(t, wake(9, futexAny, 0), 0) // another kind of futex
	wantRes(t, wake(1, 6, futexPrivate), 1)
	wantRes(t, wake(9, futexAny, futexPrivate), 2)
	wantErrno(t, wake(1, 1<<32, futexPrivate), syscall.EINVAL)
	wantErrno(t, wake(1, futexAny, 1<<30), syscall.EINVAL)
}

func kernelFutexWaitv(t *testing.T, r *uring.Ring) {
	words := make([]atomic.Uint32, 3)
	futexes := make([]uring.FutexWaitv, 129)
	keep(t, words, futexes)
	for i := range futexes {
		futexes[i] = uring.NewFutexWaitv(&words[i%3], 0, futexPrivate)
	}
	waitv := func(f []uring.FutexWaitv) { push(t, r).FutexWaitv(f).SetUserData(1) }
	for _, i := range []int{1, 0, 2} {
		waitv(futexes[:3])
		wantQuiet(t, r)
		push(t, r).FutexWake(&words[i], 1, futexAny, futexPrivate).SetUserData(2)
		m := byUserData(t, r, 2)
		wantRes(t, m[1], i)
		wantRes(t, m[2], 1)
	}
	for _, n := range []int{0, 129} {
		waitv(futexes[:n])
		wantErrno(t, await(t, r, 1), syscall.EINVAL)
	}
	words[1].Store(1)
	waitv(futexes[:3])
	wantErrno(t, await(t, r, 1), syscall.EAGAIN)
}

// childEnv makes the test binary a child that exits when its input ends.
const childEnv = "RINGSIDE_WAITID_CHILD"

func TestWaitIDChild(t *testing.T) {
	if os.Getenv(childEnv) == "" {
		return // only kernelWaitID starts it
	}
	os.Stdin.Read(make([]byte, 1))
	os.Exit(7)
}

// startChild starts a child that exits with 7 when stop is called.
func startChild(t *testing.T) (child *exec.Cmd, stop func()) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child = exec.Command(exe, "-test.run=^TestWaitIDChild$")
	child.Env = append(os.Environ(), childEnv+"=1")
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		child.Process.Kill()
		child.Wait()
	})
	return child, func() { in.Close() }
}

func kernelWaitID(t *testing.T, r *uring.Ring) {
	const byPID, exited, noHang, noReap = 1, 4, 1, 0x01000000
	child, stop := startChild(t)
	pid := child.Process.Pid
	info := new(uring.Siginfo)
	keep(t, info)

	wantRes(t, ringtest.Do(t, r, func(e *uring.SQE) { e.WaitID(byPID, pid, info, exited|noHang) }), 0)
	if *info != (uring.Siginfo{}) {
		t.Errorf("got information about a running child: signal %d, pid %d", info.Signo(), info.PID())
	}
	wantErrno(t, ringtest.Do(t, r, func(e *uring.SQE) { e.WaitID(byPID, os.Getpid(), nil, exited) }), syscall.ECHILD)
	wantErrno(t, ringtest.Do(t, r, func(e *uring.SQE) { e.WaitID(99, 0, nil, exited) }), syscall.EINVAL)

	push(t, r).WaitID(byPID, pid, info, exited|noReap).SetUserData(1)
	wantQuiet(t, r)
	push(t, r).Cancel(1).SetUserData(2)
	m := byUserData(t, r, 2)
	wantErrno(t, m[1], syscall.ECANCELED)

	push(t, r).WaitID(byPID, pid, info, exited|noReap).SetUserData(1)
	wantQuiet(t, r)
	stop()
	wantRes(t, await(t, r, 1), 0)
	const sigchld, cldExited = 17, 1
	if info.Signo() != sigchld || info.Code() != cldExited || info.PID() != pid ||
		info.UID() != os.Getuid() || info.Status() != 7 {
		t.Errorf("signal %d, code %d, pid %d, uid %d, status %d", info.Signo(), info.Code(), info.PID(), info.UID(), info.Status())
	}
	child.Wait()
	if code := child.ProcessState.ExitCode(); code != 7 {
		t.Errorf("exit code %d after waiting without reaping", code)
	}
}
