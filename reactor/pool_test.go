// SPDX-License-Identifier: MIT

//go:build linux

package reactor

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

func pool(t testing.TB, r *Reactor, o BufferPoolOptions) *BufferPool {
	t.Helper()
	p, err := r.NewBufferPool(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// get takes a buffer that must be there.
func get(t testing.TB, p *BufferPool) *Buffer {
	t.Helper()
	b, ok := p.TryGet()
	if !ok {
		t.Fatal("no buffer")
	}
	return b
}

// into makes a read into a buffer of a pool.
func into(b *Buffer, fd, n int, off int64) *Op {
	op := &Op{Buffer: b, Bytes: n}
	op.SQE.Read(uring.Fd(fd), b.Bytes()[:n], off)
	return op
}

// reads has many goroutines read a file through a pool.
func reads(t *testing.T, r *Reactor, p *BufferPool) {
	t.Helper()
	file, want := pattern(t, 1<<16)
	var readers sync.WaitGroup
	for i := range 16 {
		readers.Go(func() {
			for j := range 20 {
				b, err := p.Get(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				off := (i*20 + j) * 100
				if res := r.Do(into(b, int(file.Fd()), 1000, int64(off))); res.Res != 1000 || !bytes.Equal(b.Bytes()[:1000], want[off:off+1000]) {
					t.Errorf("%+v", res)
				}
				b.Put()
			}
		})
	}
	readers.Wait()
}

func TestPool(t *testing.T) {
	overKinds(t, func(t *testing.T, r *Reactor) {
		ringtest.NeedKernel(t, "empty slots of registered buffers", "5.13")
		for n := range 3 {
			p := pool(t, r, BufferPoolOptions{Buffers: 5, BufferSize: 3000})
			before := r.Stats()
			reads(t, r, p)
			if s := r.Stats(); s.FixedBuffers-before.FixedBuffers != 320 || s.PlainBuffers != before.PlainBuffers {
				t.Errorf("%d operations of 320 used registered memory, of %d buffers", s.FixedBuffers-before.FixedBuffers, p.Registered())
			}
			b := get(t, p)
			if len(b.Bytes()) != 4096 || !sys.Aligned(b.Bytes(), 4096) {
				t.Errorf("a buffer of %d bytes", len(b.Bytes()))
			}
			b.Put()
			if n == 1 {
				if err := p.Close(); err != nil {
					t.Error(err)
				}
			}
		}
		if p := pool(t, r, BufferPoolOptions{Buffers: 1}); p.index != 2 {
			t.Errorf("the place of the pool that was closed is not used again, but %d", p.index)
		}
	})
}

// TestPoolWritesAndSends uses a buffer for each operation that has a registered
// form, and for some that have none.
func TestPoolWritesAndSends(t *testing.T) {
	overKinds(t, func(t *testing.T, r *Reactor) {
		ringtest.NeedOp(t, uring.OpSendZC, "6.0")
		p := pool(t, r, BufferPoolOptions{Buffers: 2, BufferSize: 4096})
		b := get(t, p)
		copy(b.Bytes(), "from a pool")
		file, _ := pattern(t, 0)
		op := &Op{Buffer: b}
		op.SQE.Write(uring.Fd(int(file.Fd())), b.Bytes()[:11], 0)
		if res := r.Do(op); res.Res != 11 {
			t.Errorf("write: %+v", res)
		}
		got := make([]byte, 20)
		if n, _ := file.ReadAt(got, 0); string(got[:n]) != "from a pool" {
			t.Errorf("wrote %q", got[:n])
		}
		conn, peer := tcp(t)
		op.SQE.SendZC(uring.Fd(conn), b.Bytes()[:11], 0, 0)
		if res := r.Do(op); res.Res != 11 {
			t.Errorf("send: %+v", res)
		}
		if n, err := peer.Read(got); string(got[:n]) != "from a pool" {
			t.Errorf("sent %q, %v", got[:n], err)
		}
		before := r.Stats()
		op.SQE.Send(uring.Fd(conn), b.Bytes()[:11], 0)
		if res := r.Do(op); res.Res != 11 {
			t.Errorf("plain send: %+v", res)
		}
		op = into(b, int(file.Fd()), 4, 0)
		op.Buf = make([]byte, 4) // other memory than the buffer's
		op.SQE.Read(uring.Fd(int(file.Fd())), op.Buf, 0)
		if res := r.Do(op); res.Res != 4 || string(op.Buf) != "from" {
			t.Errorf("other memory: %+v", res)
		}
		if s := r.Stats(); s.PlainBuffers != before.PlainBuffers+2 || s.FixedBuffers != before.FixedBuffers {
			t.Errorf("%+v after %+v", s, before)
		}
		b.Put()
	})
}

// tcp returns two ends of a connection.
func tcp(t *testing.T) (fd int, peer net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	file, err := conn.(*net.TCPConn).File()
	conn.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	if peer, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { peer.Close() })
	return int(file.Fd()), peer
}

// TestPutWaitsForTheOperation puts a buffer that an operation in flight uses.
func TestPutWaitsForTheOperation(t *testing.T) {
	overKinds(t, func(t *testing.T, r *Reactor) {
		p := pool(t, r, BufferPoolOptions{Buffers: 1})
		rd, wr := pipe(t)
		b := get(t, p)
		done := make(chan Result, 1)
		op := into(b, rd, 3, 0)
		if _, err := r.Queue(op, func(res Result) { done <- res }); err != nil {
			t.Fatal(err)
		}
		b.Put()
		if _, ok := p.TryGet(); ok {
			t.Fatal("the buffer of an operation in flight was handed out")
		}
		if res := r.Do(into(b, rd, 3, 0)); !errors.Is(res.Cause, errReleased) {
			t.Errorf("an operation with a buffer that was put: %+v", res)
		}
		ctx, cancel := context.WithCancelCause(context.Background())
		cause := errors.New("changed my mind")
		time := make(chan error)
		go func() {
			_, err := p.Get(ctx)
			time <- err
		}()
		waitFor(t, func() bool { return p.wanted.Load() == 1 })
		cancel(cause)
		if err := <-time; err != cause {
			t.Errorf("get: %v", err)
		}
		go func() {
			b, err := p.Get(context.Background())
			if err == nil {
				b.Put()
			}
			time <- err
		}()
		waitFor(t, func() bool { return p.wanted.Load() == 1 })
		syscall.Write(wr, []byte("abc"))
		if res := <-done; res.Res != 3 {
			t.Errorf("%+v", res)
		}
		if err := <-time; err != nil {
			t.Errorf("get: %v", err)
		}
		defer func() {
			if recover() == nil {
				t.Error("a buffer could be put twice")
			}
		}()
		b.Put()
	})
}

// TestPoolClosesWhenItsBuffersAreBack closes a pool that is in use.
func TestPoolClosesWhenItsBuffersAreBack(t *testing.T) {
	overKinds(t, func(t *testing.T, r *Reactor) {
		freed := func(p *BufferPool) func() bool {
			return func() bool {
				p.r.pools.mu.Lock()
				defer p.r.pools.mu.Unlock()
				return !p.r.pools.taken[p.index]
			}
		}
		p := pool(t, r, BufferPoolOptions{Buffers: 2})
		rd, wr := pipe(t)
		a, b := get(t, p), get(t, p)
		waiting := make(chan error)
		go func() {
			_, err := p.Get(context.Background())
			waiting <- err
		}()
		waitFor(t, func() bool { return p.wanted.Load() == 1 })
		done := make(chan Result, 1)
		if _, err := r.Queue(into(b, rd, 3, 0), func(res Result) { done <- res }); err != nil {
			t.Fatal(err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if err := <-waiting; err != ErrClosed {
			t.Errorf("get of a closed pool: %v", err)
		}
		a.Bytes()[0], b.Bytes()[0] = 1, 1 // still there
		a.Put()
		b.Put()
		if freed(p)() {
			t.Fatal("freed with an operation in flight")
		}
		syscall.Write(wr, []byte("abc"))
		if res := <-done; res.Res != 3 {
			t.Errorf("%+v", res)
		}
		waitFor(t, freed(p))

		late := pool(t, r, BufferPoolOptions{Buffers: 1})
		c := get(t, late)
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		c.Bytes()[0] = 1 // closing the reactor does not take it away
		c.Put()
		if err := late.Close(); err != nil {
			t.Error(err)
		}
		r.background.wait()
		if _, err := r.NewBufferPool(BufferPoolOptions{}); err != ErrClosed {
			t.Errorf("a pool of a closed reactor: %v", err)
		}
	})
}

func (k *frugal) UpdateBuffers(first int, bufs [][]byte, tags []uint64) (int, error) {
	if k.refuse != 0 && bufs[0] != nil && len(bufs[0]) > k.bytes {
		return 0, k.refuse
	}
	return k.kernelRing.UpdateBuffers(first, bufs, tags)
}

func (k *frugal) CloneBuffers(src *uring.Ring, o uring.CloneOptions) error {
	if !k.clones {
		return syscall.EINVAL
	}
	return k.kernelRing.CloneBuffers(src, o)
}

func (k *frugal) RegisterBuffersSparse(n int) error {
	if k.old {
		return syscall.EINVAL
	}
	return k.kernelRing.RegisterBuffersSparse(n)
}

// TestPoolWhereLittleMayBeRegistered has reads succeed whatever the limit.
func TestPoolWhereLittleMayBeRegistered(t *testing.T) {
	ringtest.NeedKernel(t, "empty slots of registered buffers", "5.13")
	for _, test := range []struct {
		frugal
		registered int
	}{
		{frugal{}, 8},          // without cloning
		{frugal{old: true}, 8}, // without sparse tables
		{frugal{refuse: syscall.ENOMEM, bytes: 5 * 4096}, 4},          // half
		{frugal{refuse: syscall.ENOMEM, bytes: 4096, old: true}, 1},   // one
		{frugal{refuse: syscall.ENOMEM}, 0},                           // none
		{frugal{refuse: syscall.EOPNOTSUPP, bytes: 1}, 0},             // whatever
		{frugal{clones: true, refuse: syscall.EPERM}, ifClones(t, 8)}, // cloned only
	} {
		r := open(t, Options{Loops: 2, open: openFrugal(test.frugal)})
		p := pool(t, r, BufferPoolOptions{Buffers: 8, BufferSize: 4096})
		if p.Registered() != test.registered {
			t.Errorf("%+v: %d buffers are registered", test.frugal, p.Registered())
		}
		reads(t, r, p)
		before := r.Stats()
		file, want := pattern(t, 4096)
		var held []*Buffer
		for range 8 {
			b := get(t, p)
			if res := r.Do(into(b, int(file.Fd()), 4096, 0)); res.Res != 4096 || !bytes.Equal(b.Bytes(), want) {
				t.Errorf("%+v: %+v", test.frugal, res)
			}
			held = append(held, b)
		}
		s := r.Stats()
		if n := int(s.FixedBuffers - before.FixedBuffers); n != test.registered || int(s.PlainBuffers-before.PlainBuffers) != 8-n {
			t.Errorf("%+v: %+v after %+v", test.frugal, s, before)
		}
		for _, b := range held {
			b.Put()
		}
	}
}

// ifClones returns n where the kernel can clone tables.
func ifClones(t *testing.T, n int) int {
	t.Helper()
	src, dst := ringtest.Open(t, &uring.Options{Entries: 1}), ringtest.Open(t, &uring.Options{Entries: 1})
	if err := src.RegisterBuffersSparse(1); err != nil || dst.CloneBuffers(src, uring.CloneOptions{}) != nil {
		return 0
	}
	return n
}

// What tells a process that it is one with a low limit.
const (
	memlockLimit = "RINGSIDE_TEST_MEMLOCK" // the limit in bytes
	memlockFile  = "RINGSIDE_TEST_FILE"    // what to read
)

// TestLowMemlock runs in processes of another user with little to lock.
func TestLowMemlock(t *testing.T) {
	ringtest.NeedRing(t)
	if limit := os.Getenv(memlockLimit); limit != "" {
		lowMemlock(t, limit)
		return
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file, _ := pattern(t, 1<<16)
	for _, limit := range []int{64 << 10, 512 << 10} {
		cmd := exec.Command(exe, "-test.run=^TestLowMemlock$", "-test.v")
		cmd.Env = append(cmd.Environ(), memlockLimit+"="+strconv.Itoa(limit), memlockFile+"="+file.Name())
		out, err := cmd.CombinedOutput()
		switch {
		case err == nil && bytes.Contains(out, []byte("--- SKIP: TestLowMemlock")):
			t.Skipf("%s", out)
		case err != nil || !bytes.Contains(out, []byte("--- PASS: TestLowMemlock")):
			t.Errorf("%v\n%s", err, out)
		}
		t.Logf("%s", out)
	}
}

func lowMemlock(t *testing.T, limit string) {
	const memlock = 8 // RLIMIT_MEMLOCK
	bytes, err := strconv.ParseUint(limit, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	var was syscall.Rlimit
	if err := syscall.Getrlimit(memlock, &was); err != nil {
		t.Fatal(err)
	}
	switch err := syscall.Setrlimit(memlock, &syscall.Rlimit{Cur: bytes, Max: bytes}); {
	case err == syscall.EPERM && was.Max < bytes:
		t.Skipf("needs RLIMIT_MEMLOCK of %d bytes, the hard limit is %d", bytes, was.Max)
	case err != nil:
		t.Fatal(err)
	}
	file, err := os.Open(os.Getenv(memlockFile))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	alone := ringtest.WithoutPrivileges(t, 1<<20+os.Getpid()) // a user who has locked nothing yet
	for _, pinned := range []bool{false, true} {
		if pinned {
			ringtest.NeedKernel(t, "DEFER_TASKRUN", "6.1")
		}
		r := newWithLowMemlock(t, alone, pinned)
		readWithLowMemlock(t, r, file)
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// newWithLowMemlock waits until the kernel has freed the rings of before, which
// it does some time after they were closed. What the user's other processes hold
// may take for ever.
func newWithLowMemlock(t *testing.T, alone, pinned bool) *Reactor {
	for start := time.Now(); ; runtime.Gosched() {
		r, err := New(Options{Loops: 2, Pinned: pinned})
		switch waited := time.Since(start); {
		case err == nil:
			return r
		case !errors.Is(err, syscall.ENOMEM) || waited > ringtest.Patience:
			t.Fatal(err)
		case !alone && waited > ringtest.Patience/10:
			t.Skipf("needs locked memory that the user's other processes do not hold: %v", err)
		}
	}
}

// readWithLowMemlock reads with all buffers of a pool, of which not all can be
// registered.
func readWithLowMemlock(t *testing.T, r *Reactor, file *os.File) {
	p := pool(t, r, BufferPoolOptions{Buffers: 256, BufferSize: 4096})
	f := register(t, r, int(file.Fd()))
	want := make([]byte, 1<<16)
	if _, err := file.ReadAt(want, 0); err != nil {
		t.Fatal(err)
	}
	var held []*Buffer
	for i := range 256 {
		b := get(t, p)
		if res := r.Do(on(f, into(b, int(file.Fd()), 100, int64(i)*100))); res.Res != 100 || !bytes.Equal(b.Bytes()[:100], want[i*100:i*100+100]) {
			t.Fatalf("%+v", res)
		}
		held = append(held, b)
	}
	s := r.Stats()
	if p.Registered() == 256 || s.PlainBuffers == 0 || s.FixedBuffers+s.PlainBuffers != 256 {
		t.Errorf("a megabyte is registered where less is allowed: %+v", s)
	}
	t.Logf("pinned=%v: %d rings, %d of 256 buffers registered; %d operations with them, %d without",
		r.opts.Pinned, len(r.loops), p.Registered(), s.FixedBuffers, s.PlainBuffers)
	for _, b := range held {
		b.Put()
	}
}
