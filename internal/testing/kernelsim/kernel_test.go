// SPDX-License-Identifier: MIT

package kernelsim

import (
	"bytes"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

func TestMain(m *testing.M) { os.Exit(ringtest.Main(m)) }

// bench is a kernel with one ring and the ring's completions.
type bench struct {
	t    *testing.T
	k    *Kernel
	r    *Ring
	got  map[uint64]uring.CQE // the last completion by user data
	more int                  // completions beyond the first of each
	list []uint64             // user data in the order of completion

	built []func(*uring.SQE) // with the buffers that the kernel has
}

func onBench(t *testing.T, o Options, ro RingOptions, test func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o.Seed = max(o.Seed, 1)
		if ro.Entries == 0 {
			ro.Entries, ro.CQEntries = 64, 64
		}
		k := New(o)
		b := &bench{t: t, k: k, r: k.Open(ro), got: map[uint64]uring.CQE{}}
		defer func() {
			k.Close()
			runtime.KeepAlive(b)
		}()
		test(b)
	})
}

// sqe fills the next entry.
func (b *bench) sqe(ud uint64, build func(e *uring.SQE)) *uring.SQE {
	e := b.r.SQE()
	if e == nil {
		b.t.Fatal("the submission queue is full")
	}
	build(e)
	b.built = append(b.built, build)
	return e.SetUserData(ud)
}

// submit submits all entries.
func (b *bench) submit() {
	b.t.Helper()
	n := len(b.r.sqes) - b.r.SQSpace()
	if got, err := b.r.Submit(); err != nil || got != n {
		b.t.Fatalf("%d of %d entries are taken: %v", got, n, err)
	}
}

// settle waits until the kernel has nothing to do at the present time, and reaps.
func (b *bench) settle() {
	synctest.Wait()
	buf := make([]uring.CQE, 3)
	for n := 1; n > 0; {
		n = b.r.Reap(buf)
		for _, c := range buf[:n] {
			if _, again := b.got[c.UserData]; again {
				b.more++
			}
			b.got[c.UserData] = c
			b.list = append(b.list, c.UserData)
		}
	}
}

// want checks results by user data, which counts from 1.
func (b *bench) want(res ...int32) {
	b.t.Helper()
	for i, want := range res {
		if c, ok := b.got[uint64(i+1)]; !ok || c.Res != want {
			b.t.Errorf("user data %d: %+v (%v), want %d", i+1, c, ok, want)
		}
	}
	if v := b.k.Violations(); len(v) > 0 {
		b.t.Errorf("violations: %v", v)
	}
}

func no(errno syscall.Errno) int32 { return -int32(errno) }

func TestOperations(t *testing.T) {
	onBench(t, Options{}, RingOptions{}, func(b *bench) {
		file := b.k.File([]byte("0123456789"))
		p, w, end := make([]byte, 4), []byte("ab"), make([]byte, 4)
		ts := uring.NewTimespec(time.Hour)
		b.sqe(1, func(e *uring.SQE) { e.Nop() })
		b.sqe(2, func(e *uring.SQE) { e.Read(uring.Fd(file), p, 3) })
		b.sqe(3, func(e *uring.SQE) { e.Write(uring.Fd(file), w, 8) })
		b.sqe(4, func(e *uring.SQE) { e.Read(uring.Fd(file), end, 10) })
		b.sqe(5, func(e *uring.SQE) { e.Read(uring.Fd(99), end, 0) })
		b.sqe(6, func(e *uring.SQE) { e.Timeout(&ts, 0, 0) })
		b.submit()
		b.settle()
		b.want(0, 4, 2, 0, no(syscall.EBADF))
		if string(p) != "3456" || string(b.k.Content(file)) != "01234567ab" {
			t.Errorf("read %q, the file is %q", p, b.k.Content(file))
		}
		if _, early := b.got[6]; early {
			t.Error("the timeout completed at once")
		}
		time.Sleep(time.Hour)
		b.settle()
		b.want(0, 4, 2, 0, no(syscall.EBADF), no(syscall.ETIME))
	})
}

// TestPipe reads and polls a pipe before it has data.
func TestPipe(t *testing.T) {
	onBench(t, Options{}, RingOptions{}, func(b *bench) {
		pipe := b.k.Pipe()
		p := make([]byte, 8)
		b.sqe(1, func(e *uring.SQE) { e.Read(uring.Fd(pipe), p, 0) })
		b.sqe(2, func(e *uring.SQE) { e.PollAdd(uring.Fd(pipe), 1) })
		b.sqe(3, func(e *uring.SQE) { e.PollMultishot(uring.Fd(pipe), 1) })
		b.submit()
		b.settle()
		if len(b.got) != 0 {
			t.Fatalf("completions without data: %v", b.got)
		}
		b.k.Feed(pipe, 3)
		b.settle()
		b.want(3, 1, 1)
		if p[0] != PipeByte(0) || p[2] != PipeByte(2) || b.k.Taken(pipe) != 3 {
			t.Errorf("read %v", p)
		}
		b.k.Feed(pipe, 1)
		b.settle()
		b.want(3, 1, 1|1<<EventShift)
		if !b.got[3].Has(uring.CQEMore) || b.more != 1 {
			t.Errorf("the stream: %+v, %d more", b.got[3], b.more)
		}
		b.sqe(4, func(e *uring.SQE) { e.Cancel(3) })
		b.sqe(5, func(e *uring.SQE) { e.Cancel(1) })
		b.submit()
		b.settle()
		b.want(3, 1, no(syscall.ECANCELED), 0, no(syscall.ENOENT))
	})
}

func TestChains(t *testing.T) {
	onBench(t, Options{}, RingOptions{}, func(b *bench) {
		file, pipe := b.k.File(make([]byte, 4)), b.k.Pipe()
		p := make([]byte, 16)
		link := func(ud uint64, flag uring.SQEFlags, build func(e *uring.SQE)) {
			b.sqe(ud, build).SetFlags(flag)
		}
		read := func(i int, off int64) func(e *uring.SQE) {
			return func(e *uring.SQE) { e.Read(uring.Fd(file), p[4*i:4*i+4], off) }
		}
		link(1, uring.SQELink, read(0, 0))
		link(2, uring.SQELink, read(1, 2)) // short, which breaks the chain
		link(3, uring.SQELink, read(2, 0))
		link(4, 0, func(e *uring.SQE) { e.Nop() })
		link(5, uring.SQEHardLink, read(3, 2)) // short, which a hard link ignores
		link(6, 0, func(e *uring.SQE) { e.Nop() })
		wait, soon, late := make([]byte, 1), uring.NewTimespec(time.Second), uring.NewTimespec(time.Hour)
		link(7, uring.SQELink, func(e *uring.SQE) { e.Read(uring.Fd(pipe), wait, 0) })
		link(8, 0, func(e *uring.SQE) { e.LinkTimeout(&soon, 0) })
		link(9, uring.SQELink, func(e *uring.SQE) { e.Nop() })
		link(10, 0, func(e *uring.SQE) { e.LinkTimeout(&late, 0) })
		link(11, 0, func(e *uring.SQE) { e.LinkTimeout(&late, 0) })
		b.submit()
		b.settle()
		time.Sleep(2 * time.Second)
		b.settle()
		cancelled := no(syscall.ECANCELED)
		b.want(4, 2, cancelled, cancelled, 2, 0, cancelled, no(syscall.ETIME), 0, cancelled, no(syscall.EINVAL))
	})
}

// TestOverflow fills a small CQ. Overflowed completions must be posted in order when they
// are requested.
func TestOverflow(t *testing.T) {
	onBench(t, Options{BusyOnOverflow: true}, RingOptions{Entries: 8, CQEntries: 2}, func(b *bench) {
		for ud := range uint64(8) {
			b.sqe(ud+1, func(e *uring.SQE) { e.Nop() })
		}
		b.submit()
		b.sqe(9, func(e *uring.SQE) { e.Nop() })
		if _, err := b.r.Submit(); err != syscall.EBUSY {
			t.Errorf("submission while completions wait: %v", err)
		}
		b.settle()
		if !slices.IsSorted(b.list) || len(b.list) != 8 || b.r.CQOverflow() == 0 {
			t.Errorf("completions %v, %d overflows", b.list, b.r.CQOverflow())
		}
		b.submit()
	})
}

// TestViolations breaks the rules for users of a ring.
func TestViolations(t *testing.T) {
	for _, c := range []struct {
		want string
		do   func(b *bench)
	}{
		{"buffer", func(b *bench) {
			pipe, p := b.k.Pipe(), make([]byte, 4)
			b.sqe(1, func(e *uring.SQE) { e.Read(uring.Fd(pipe), p, 0) })
			b.sqe(2, func(e *uring.SQE) { e.Read(uring.Fd(pipe), p[3:], 0) })
			b.submit()
		}},
		{"inside a chain", func(b *bench) {
			b.sqe(1, func(e *uring.SQE) { e.Nop().SetFlags(uring.SQELink) })
			b.submit()
		}},
		{"closed with", func(b *bench) {
			pipe, p := b.k.Pipe(), make([]byte, 4)
			b.sqe(1, func(e *uring.SQE) { e.Read(uring.Fd(pipe), p, 0) })
			b.submit()
			_ = b.r.Close()
		}},
	} {
		onBench(t, Options{}, RingOptions{}, func(b *bench) {
			c.do(b)
			if v := b.k.Violations(); len(v) != 1 || !strings.Contains(v[0], c.want) {
				t.Errorf("violations %q, want one about %q", v, c.want)
			}
		})
	}
}

// everything enables all faults, with high probabilities.
var everything = Faults{
	Delay: 0.5, Late: 0.5, Short: 0.3, Interrupted: 0.1, Again: 0.1, Broken: 0.1, NoSpace: 0.1, NoBuffers: 0.3,
	Exit: 0.2, LostCancel: 0.5, Disturbed: 0.3, LostLink: 0.5, Stale: 0.3,
}

// script submits the same entries under a seed and returns what happened.
func script(t *testing.T, seed uint64) (trace string, completions []uint64) {
	// Stale completions are chosen when a goroutine reaps, and the scheduler chooses which
	// goroutine reaps first at one instant.
	faults := everything
	faults.Stale = 0
	onBench(t, Options{Seed: seed, Faults: faults}, RingOptions{}, func(b *bench) {
		file, pipe := b.k.File(make([]byte, 100)), b.k.Pipe()
		buf := make([]byte, 1000)
		for i := range uint64(20) {
			p := buf[i*16 : i*16+16]
			b.sqe(i+1, func(e *uring.SQE) { e.Read(uring.Fd(file), p, int64(i)) })
			q := buf[400+i*16 : 400+i*16+16]
			b.sqe(i+101, func(e *uring.SQE) { e.Read(uring.Fd(pipe), q, 0) })
			b.sqe(i+201, func(e *uring.SQE) { e.Cancel(i/2 + 101) })
		}
		b.submit()
		synctest.Wait()
		b.k.Feed(pipe, 100)
		for range 2 {
			time.Sleep(time.Second)
			b.settle()
		}
		trace, completions = b.k.Trace(), b.list
	})
	return trace, completions
}

func TestSeedReplays(t *testing.T) {
	first, list := script(t, 7)
	if again, relist := script(t, 7); again != first || !slices.Equal(list, relist) {
		t.Errorf("two traces of one seed:\n%s\n%s", first, again)
	}
	if other, _ := script(t, 8); other == first {
		t.Error("two seeds have the same trace")
	}
}

// TestGarbageBeforeTheEnd checks that the simulated kernel writes garbage to the buffer of
// a read in flight, as only the kernel may.
func TestGarbageBeforeTheEnd(t *testing.T) {
	onBench(t, Options{Faults: Faults{Delay: 1}}, RingOptions{}, func(b *bench) {
		pipe := b.k.Pipe()
		p := make([]byte, 64)
		b.sqe(1, func(e *uring.SQE) { e.Read(uring.Fd(pipe), p, 0) })
		b.submit()
		synctest.Wait()
		if bytes.Equal(p, make([]byte, 64)) {
			t.Error("the kernel did not write to the buffer before the completion")
		}
		b.k.Feed(pipe, 64)
		b.settle()
		b.want(64)
		for i := range p {
			if p[i] != PipeByte(uint64(i)) {
				t.Fatalf("byte %d is %d, want the data of the read", i, p[i])
			}
		}
	})
}

// TestFatal makes a ring fail: every later enter fails.
func TestFatal(t *testing.T) {
	onBench(t, Options{Faults: Faults{Fatal: 1}}, RingOptions{}, func(b *bench) {
		b.sqe(1, func(e *uring.SQE) { e.Nop() })
		for range 2 {
			if n, err := b.r.Submit(); n != 0 || err != syscall.EBADF {
				t.Errorf("%d, %v", n, err)
			}
		}
		if !b.k.Failed() {
			t.Error("the kernel does not report that a ring has failed")
		}
	})
}
