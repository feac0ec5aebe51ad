// SPDX-License-Identifier: MIT

package reactor

import (
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

// queueAndExit starts an operation on a thread that then exits, and waits for the exit.
func queueAndExit(t *testing.T, r *Reactor, op *Op) (ended chan Result) {
	t.Helper()
	ended = make(chan Result, 1)
	thread := make(chan int)
	var start func()
	start = func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if syscall.Gettid() == os.Getpid() {
			defer runtime.UnlockOSThread() // this thread stays
			locked := make(chan bool)
			go func() { start(); close(locked) }()
			<-locked
			return
		}
		_, err := r.Queue(op, func(res Result) { ended <- res })
		if err != nil {
			t.Error(err)
		}
		thread <- syscall.Gettid()
	}
	go start()
	tid := <-thread
	waitFor(t, func() bool { gone, _ := sys.ThreadExited(tid); return gone })
	return ended
}

// listener returns a listening socket and its address.
func listener(t *testing.T) (fd int, addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return int(f.Fd()), l.Addr().String()
}

// TestOperationOutlivesItsThread starts one operation of each kind that waits, on a thread
// that exits: the operation continues and takes effect once.
// Promise: reactor/cancellation-completion-exit
func TestOperationOutlivesItsThread(t *testing.T) {
	r := open(t, Options{Loops: 1})
	type trial struct {
		op   *Op
		let  func() // makes the operation end
		want func(Result) bool
	}
	count := func(n int32) func(Result) bool {
		return func(res Result) bool { return res.Cause == nil && res.Res == n }
	}
	full := func(wr, rd int) (drain func()) { // so that a write has to wait
		n := fillPipe(t, wr)
		return func() {
			for p := make([]byte, 1<<16); n > 0; {
				k, err := syscall.Read(rd, p)
				if err != nil {
					t.Fatal(err)
				}
				n -= k
			}
		}
	}
	for name, begin := range map[string]func() trial{
		"READ": func() trial {
			rd, wr := pipe(t)
			return trial{readOp(rd, make([]byte, 8), 0), func() { syscall.Write(wr, []byte("abc")) }, count(3)}
		},
		"WRITE": func() trial {
			rd, wr := pipe(t)
			op := &Op{Buf: []byte("once")}
			op.SQE.Write(uring.Fd(wr), op.Buf, 0)
			return trial{op, full(wr, rd), func(res Result) bool {
				p := make([]byte, 64)
				n, err := syscall.Read(rd, p)
				return res.Res == 4 && err == nil && string(p[:n]) == "once"
			}}
		},
		"RECV": func() trial {
			a, b := pair(t)
			op := &Op{Buf: make([]byte, 8)}
			op.SQE.Recv(uring.Fd(a), op.Buf, 0)
			return trial{op, func() { syscall.Write(b, []byte("abc")) }, count(3)}
		},
		"SEND": func() trial {
			a, b := pair(t)
			n := fillPipe(t, a)
			op := &Op{Buf: []byte("once")}
			op.SQE.Send(uring.Fd(a), op.Buf, 0)
			return trial{op, func() {
				for p := make([]byte, 1<<16); n > 0; {
					k, err := syscall.Read(b, p)
					if err != nil {
						t.Fatal(err)
					}
					n -= k
				}
			}, count(4)}
		},
		"ACCEPT": func() trial {
			fd, addr := listener(t)
			op := new(Op)
			op.SQE.Accept(uring.Fd(fd), nil, syscall.SOCK_CLOEXEC)
			return trial{op, func() {
				c, err := net.Dial("tcp", addr)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { c.Close() })
			}, func(res Result) bool {
				return res.Cause == nil && res.Res >= 0 && syscall.Close(int(res.Res)) == nil
			}}
		},
		"POLL_ADD": func() trial {
			rd, wr := pipe(t)
			op := new(Op)
			op.SQE.PollAdd(uring.Fd(rd), unix.POLLIN)
			return trial{op, func() { syscall.Write(wr, []byte("a")) }, count(unix.POLLIN)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := r.Stats().Retried
			tr := begin()
			ended := queueAndExit(t, r, tr.op)
			tr.let()
			select {
			case res := <-ended:
				if !tr.want(res) {
					t.Errorf("%+v", res)
				}
				t.Logf("submitted again %d times", r.Stats().Retried-before)
			case <-time.After(ringtest.Patience):
				t.Fatal("the operation does not end")
			}
		})
	}
	if r.Stats().Retried == 0 {
		t.Error("no exit of a thread cancelled an operation")
	}
}

// TestCancelFDHasEffect cancels, by descriptor, operations that other goroutines started.
// Promise: reactor/operation-submitted-again
func TestCancelFDHasEffect(t *testing.T) {
	ringtest.NeedKernel(t, "IORING_ASYNC_CANCEL_FD", "5.19")
	overKinds(t, func(t *testing.T, r *Reactor) {
		if len(r.loops) > 1 {
			return // a cancellation reaches only the operations of its ring
		}
		a, _ := pair(t)
		const many = 3
		ended := make(chan Result, many)
		for range many {
			op := &Op{Buf: make([]byte, 8)}
			op.SQE.Recv(uring.Fd(a), op.Buf, 0)
			if _, err := r.Queue(op, func(res Result) { ended <- res }); err != nil {
				t.Skipf("no room for %d operations: %v", many, err)
			}
		}
		op := new(Op)
		op.SQE.CancelWith(uring.CancelOptions{ByFD: true, FD: uring.Fd(a), All: true})
		if res := r.Do(op); res.Res != many {
			t.Errorf("%+v, want %d", res, many)
		}
		for range many {
			select {
			case res := <-ended:
				if res.Errno() != syscall.ECANCELED || res.Cause != nil {
					t.Errorf("%+v", res)
				}
			case <-time.After(ringtest.Patience):
				t.Fatal("a cancelled receive continues")
			}
		}
	})
}

// TestAlwaysInterrupted uses a kernel that always returns EINTR.
// Promise: reactor/operation-submitted-again
func TestAlwaysInterrupted(t *testing.T) {
	ringtest.NeedKernel(t, "IORING_NOP_INJECT_RESULT", "6.10")
	defer debug.SetMaxStack(debug.SetMaxStack(256 << 10)) // also for the goroutines of the reactor
	overKinds(t, func(t *testing.T, r *Reactor) {
		op := new(Op)
		op.SQE.NopWith(uring.NopOptions{Inject: true, Result: -int32(syscall.EINTR)})
		if res := r.Do(op); res.Errno() != syscall.EINTR {
			t.Errorf("%+v", res)
		}
		op.SQE.NopWith(uring.NopOptions{Inject: true, Result: -int32(syscall.ECANCELED)})
		if res := r.Do(op); res.Errno() != syscall.ECANCELED {
			t.Errorf("%+v", res)
		}
	})
}

// TestInterruptedWorkers interrupts the kernel by signals while it creates the first worker
// thread of the submitting thread. After several attempts the kernel cancels the operation
// that waits for the worker. On Linux 6.1 in an emulated machine that happens in a few of a
// hundred rounds.
// Promise: reactor/operation-whose-worker
func TestInterruptedWorkers(t *testing.T) {
	r := open(t, Options{Loops: 1})
	rd, wr := pipe(t)
	round := func() {
		runtime.LockOSThread() // never unlocked: the next thread has no worker either
		tid := syscall.Gettid()
		var stop atomic.Bool
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			for !stop.Load() {
				for range 100 {
					_ = sys.SignalThread(tid, syscall.SIGURG) // Go's scheduler sends it too
				}
			}
		}()
		for range 4 {
			if _, err := syscall.Write(wr, []byte("x")); err != nil {
				t.Error(err)
			}
			op := readOp(rd, make([]byte, 8), 0)
			op.SQE.SetFlags(uring.SQEAsync)
			if res := r.Do(op); res.Res != 1 || res.Cause != nil {
				t.Errorf("%+v", res)
			}
		}
		stop.Store(true)
		<-stopped
	}
	for range 100 {
		over := make(chan struct{})
		go func() { defer close(over); round() }()
		<-over
		if t.Failed() {
			break
		}
	}
	t.Logf("submitted again %d times", r.Stats().Retried)
}

// TestAnswersCancelled tries files of each kind.
// Promise: reactor/operation-whose-worker
func TestAnswersCancelled(t *testing.T) {
	rd, _ := pipe(t)
	a, _ := pair(t)
	timer, err := unix.TimerfdCreate(unix.CLOCK_REALTIME, unix.TFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(timer)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	proc, err := os.Open("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	defer proc.Close()
	for what, c := range map[string]struct {
		fd   int
		want bool
	}{
		"a pipe": {rd, false}, "a socket": {a, false}, "a timerfd": {timer, true}, "a device": {int(null.Fd()), true},
		"a file of procfs": {int(proc.Fd()), true}, "no descriptor": {-1, true},
	} {
		if got := sys.AnswersCancelled(c.fd); got != c.want {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
	}
}

// TestClockThatIsSet sets the clock under a timerfd: its reader must be notified
// (timerfd_create(2), TFD_TIMER_CANCEL_ON_SET).
// Promise: reactor/operation-submitted-again
func TestClockThatIsSet(t *testing.T) {
	ringtest.NeedMachine(t, "sets the system clock")
	overKinds(t, func(t *testing.T, r *Reactor) {
		fd, err := unix.TimerfdCreate(unix.CLOCK_REALTIME, unix.TFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		at := unix.ItimerSpec{Value: unix.NsecToTimespec(time.Now().Add(24 * time.Hour).UnixNano())}
		if err := unix.TimerfdSettime(fd, unix.TFD_TIMER_ABSTIME|unix.TFD_TIMER_CANCEL_ON_SET, &at, nil); err != nil {
			t.Fatal(err)
		}
		var stop atomic.Bool
		defer stop.Store(true)
		go func() {
			for !stop.Load() { // until the read waits for the notification
				var now unix.Timeval
				unix.Gettimeofday(&now)
				now.Sec++
				unix.Settimeofday(&now)
				runtime.Gosched()
			}
		}()
		if res := r.Do(readOp(fd, make([]byte, 8), 0)); res.Errno() != syscall.ECANCELED || res.Cause != nil {
			t.Errorf("%+v", res)
		}
	})
}
