// SPDX-License-Identifier: MIT

package reactor

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/kernelsim"
)

const (
	simFile   = 4096 // bytes of the file that the workers read
	simRegion = 256  // bytes that each worker writes
)

// environment is one simulation.
type environment struct {
	plan
	t *testing.T
	k *kernelsim.Kernel
	r *Reactor

	content  []byte
	file     int // holds content
	scratch  int // the workers write to it
	wet, dry []int
	tags     atomic.Uint64
	inside   int         // inside a callback; unguarded, see (*environment).callback
	closing  atomic.Bool // Close has been called
	closed   atomic.Bool // Close has returned
	over     atomic.Bool // everything has ended
	queued   sync.WaitGroup

	mu     sync.Mutex
	graves [][]byte // buffers of ended operations, filled with a pattern

	// For tests with seeded bugs: hooks that replace the workers and the failure of the
	// test.
	scene   func() // replaces the workers
	hung    func(report string)
	wronged func(what string)
}

// errorf reports that something is wrong.
func (w *environment) errorf(format string, args ...any) {
	if what := fmt.Sprintf(format, args...); w.wronged != nil {
		w.wronged(what)
	} else {
		w.t.Error(what)
	}
}

// keepBuffer keeps the buffer of an ended operation, filled with a pattern that no
// goroutine and no kernel may change.
func (w *environment) keepBuffer(p []byte) {
	if p == nil {
		return
	}
	fill(p)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.graves = append(w.graves, p)
}

const pattern0 = 0x5a

func fill(p []byte) {
	for i := range p {
		p[i] = pattern0
	}
}

// checkKept looks for buffers that were changed after the end of their operations.
func (w *environment) checkKept() {
	time.Sleep(time.Second) // simulated time: every late write has happened by then
	w.k.Mend()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.graves {
		if bytes.Count(p, []byte{pattern0}) != len(p) {
			w.errorf("a buffer was written to after the end of its operation: %x", p)
		}
	}
}

// run carries out the plan within its bubble.
func (w *environment) run() {
	w.k = kernelsim.New(kernelsim.Options{Seed: w.seed, Faults: w.faults, Bugs: w.bugs, BusyOnOverflow: w.busy})
	defer w.k.Close()
	rng := rand.New(rand.NewPCG(w.seed, 2))
	w.content = make([]byte, simFile)
	for i := range w.content {
		w.content[i] = byte(rng.Uint32())
	}
	w.file = w.k.File(append([]byte(nil), w.content...))
	w.scratch = w.k.File(make([]byte, w.workers*simRegion))
	for range 2 {
		w.wet = append(w.wet, w.k.Pipe())
		w.dry = append(w.dry, w.k.Pipe())
	}
	w.opts.open = simOpener(w.k, w.cq)
	var err error
	if w.r, err = New(w.opts); err != nil {
		w.t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		if w.scene != nil {
			w.scene()
			w.close()
			return
		}
		w.runWorkers(rng)
	}()
	w.watch(over)
	w.aftermath()
	w.checkKept()
}

// watch is the watchdog.
func (w *environment) watch(over chan struct{}) {
	dog := time.NewTimer(5 * time.Minute) // simulated time
	defer dog.Stop()
	select {
	case <-over:
		return
	case <-dog.C:
	}
	report := w.report("a goroutine waits for ever")
	if w.hung == nil {
		fmt.Fprintln(os.Stderr, report)
		panic(fmt.Sprintf("hang: seed %d", w.seed))
	}
	w.hung(report)
	<-over
}

// runWorkers starts the workers and ends the reactor.
func (w *environment) runWorkers(rng *rand.Rand) {
	var workers, helpers sync.WaitGroup
	models := make([][]byte, w.workers)
	var all []*worker
	for i := range models {
		models[i] = make([]byte, simRegion)
		a := &worker{environment: w, rng: rand.New(rand.NewPCG(w.seed, uint64(100+i))), region: i * simRegion, model: models[i]}
		all = append(all, a)
		workers.Go(a.run)
	}
	helpers.Go(w.feed)
	helpers.Go(w.closeWhenFailed)
	if w.ending == whenDone {
		workers.Wait()
		w.queued.Wait()
		if n := w.r.Stats().InFlight; n != 0 && !w.k.Failed() {
			w.errorf("%d operations are in flight after the last has ended", n)
		}
		w.close()
	} else {
		w.dawdle(rng)
		w.end()
		workers.Wait()
		w.queued.Wait()
	}
	w.over.Store(true)
	helpers.Wait()
	w.checkScratch(models)
	for _, a := range all {
		for _, p := range a.spare {
			w.keepBuffer(p)
		}
	}
}

// dawdle waits for some time, or only yields several times.
func (w *environment) dawdle(rng *rand.Rand) {
	if rng.IntN(2) == 0 {
		time.Sleep(time.Duration(rng.IntN(20_000_000)))
		return
	}
	for range rng.IntN(300) {
		runtime.Gosched()
	}
}

// end closes the reactor while it is in use.
func (w *environment) end() {
	w.closing.Store(true)
	if w.ending == closeTwice {
		var other sync.WaitGroup
		other.Go(func() { _ = w.r.Close() })
		defer other.Wait()
		return
	}
	w.close()
}

func (w *environment) close() {
	w.closing.Store(true)
	w.closeIs(w.r.Close())
}

// closeIs checks the result of Close.
func (w *environment) closeIs(err error) {
	if w.ending != closeTwice && !w.k.Failed() {
		w.closed.Store(true)
	}
	if err != nil && !w.k.Failed() {
		w.errorf("close: %v", err)
	}
}

// closeWhenFailed closes the reactor after its ring has failed, as a program does.
func (w *environment) closeWhenFailed() {
	for d := time.Millisecond; !w.over.Load(); d = min(2*d, 10*time.Second) {
		if w.k.Failed() {
			w.close()
			return
		}
		time.Sleep(d)
	}
}

// feed writes to the pipes that have data until the reactor is closed. Reads that still
// wait then must be cancelled.
func (w *environment) feed() {
	rng := rand.New(rand.NewPCG(w.seed, 3))
	for d := 100 * time.Microsecond; !w.closing.Load(); d = min(d*5/4, 10*time.Second) {
		for _, fd := range w.wet {
			w.k.Feed(fd, 1+rng.IntN(100))
		}
		time.Sleep(d)
	}
}

// checkScratch compares the file that was written to with the results of the writes.
func (w *environment) checkScratch(models [][]byte) {
	got := w.k.Content(w.scratch)
	for i, m := range models {
		if string(got[i*simRegion:(i+1)*simRegion]) != string(m) && !w.k.Failed() {
			w.errorf("worker %d: the file does not hold what was written", i)
		}
	}
}

// aftermath checks that nothing is left.
func (w *environment) aftermath() {
	for _, v := range w.k.Violations() {
		w.errorf("violation: %s", v)
	}
	for i, l := range w.r.loops {
		// Memory of operations that are still in the kernel is kept for ever.
		if have, held := l.ring.(*kernelsim.Ring).Left(), l.table.Held(); have > held {
			w.errorf("loop %d: the kernel has %d operations and the table keeps %d", i, have, held)
		}
	}
	if w.k.Failed() {
		return
	}
	for i, l := range w.r.loops {
		if n := l.table.Held(); n != 0 {
			w.errorf("loop %d: %d slots are held after Close", i, n)
		}
		if n := l.waiters.Load(); n != 0 {
			w.errorf("loop %d: %d wait for room after Close", i, n)
		}
		if n := l.busy.Load(); n != 0 {
			w.errorf("loop %d: busy is %d after Close", i, n)
		}
	}
}

// callback runs the test's part of a callback. With one ring no two callbacks run at the
// same time: the race detector would find it, because inside is not guarded.
func (w *environment) callback(f func()) {
	if w.closed.Load() {
		w.errorf("a callback runs after Close")
	}
	if w.opts.Loops == 1 {
		w.inside++
		defer func() { w.inside-- }()
		if w.inside != 1 {
			w.errorf("two callbacks run at the same time")
		}
	}
	f()
}
