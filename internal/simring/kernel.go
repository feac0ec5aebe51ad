// SPDX-License-Identifier: MIT

package simring

import (
	"fmt"
	"sync"
	"time"
)

// Options configure a kernel.
type Options struct {
	Seed   uint64
	Faults Faults
	Bugs   Bugs
	Plan   Plan
	// Memory returns the memory at an address that an entry carries. It is the
	// test's part, because it cannot be done without package unsafe.
	Memory func(addr uint64, n int) []byte
	// BusyOnOverflow makes submissions answer EBUSY while completions that
	// overflowed wait, as kernels up to 5.18 do.
	BusyOnOverflow bool
	// Host, when not nil, does the operations on descriptors of the process, so
	// that what stands on files can be tested: those below FirstFD, where the
	// kernel's own descriptors begin.
	Host    Host
	FirstFD int
}

// Kernel is what the rings of one test share. Its methods may be called
// concurrently.
type Kernel struct {
	o Options

	mu       sync.Mutex
	work     *sync.Cond
	order    dice
	tasks    []task
	objects  []*object
	hosts    map[int32]*object
	rings    []*Ring
	live     live
	pages    map[uint64][]*op // those alive, by the pages of their buffers
	outcomes map[uint64]*Outcome
	wrong    []string
	trace    trace
	bugs     bugState
	cancels  uint64
	stopped  bool
	done     chan struct{}
}

// task is something that the kernel's goroutine will do: tick in each of its
// steps and, after them, run.
type task struct {
	steps     int
	tick, run func()
}

// New starts a kernel. It has one goroutine, until [Kernel.Close].
func New(o Options) *Kernel {
	k := &Kernel{o: o, outcomes: make(map[uint64]*Outcome), hosts: make(map[int32]*object), pages: make(map[uint64][]*op), done: make(chan struct{})}
	k.work = sync.NewCond(&k.mu)
	k.order = k.dice(ofKernel, 0)
	k.bugs.left = o.Bugs
	k.nothing() // descriptor 0 is no object
	go k.run()
	return k
}

// Close ends the kernel's goroutine and waits for it.
func (k *Kernel) Close() {
	k.mu.Lock()
	k.stopped = true
	k.work.Broadcast()
	k.mu.Unlock()
	<-k.done
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, o := range k.live.all {
		o.drop()
	}
}

// run does what is to be done, in random order. Between two steps others get
// the lock.
func (k *Kernel) run() {
	defer close(k.done)
	for {
		k.mu.Lock()
		for len(k.tasks) == 0 && !k.stopped {
			k.work.Wait()
		}
		if k.stopped {
			k.mu.Unlock()
			return
		}
		k.step()
		breath := k.order.IntN(4) == 0
		k.mu.Unlock()
		if breath {
			pause()
		}
	}
}

// step makes one task go on. The caller holds mu.
func (k *Kernel) step() {
	i := k.order.IntN(len(k.tasks))
	t := &k.tasks[i]
	if t.steps > 0 {
		t.steps--
		if t.tick != nil {
			t.tick()
		}
		return
	}
	run := t.run
	last := len(k.tasks) - 1
	k.tasks[i] = k.tasks[last]
	k.tasks[last] = task{}
	k.tasks = k.tasks[:last]
	run()
}

// soon does something after a number of steps. The caller holds mu.
func (k *Kernel) soon(steps int, run func()) { k.spread(steps, nil, run) }

func (k *Kernel) spread(steps int, tick, run func()) {
	k.tasks = append(k.tasks, task{steps, tick, run})
	k.work.Signal()
}

// later does something after a time, which is not zero: timers that are due at
// once run beside each other, which in a bubble of package synctest crashes the race
// detector of Go 1.26. The caller holds mu.
func (k *Kernel) later(d time.Duration, run func()) *time.Timer {
	return time.AfterFunc(max(d, 1), func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if !k.stopped {
			run()
		}
	})
}

// violation keeps what a user of the kernel did wrong. The caller holds mu.
func (k *Kernel) violation(format string, args ...any) {
	s := fmt.Sprintf(format, args...)
	k.trace.add(event{what: "violation"})
	if len(k.wrong) < 20 {
		k.wrong = append(k.wrong, s)
	}
}

// Violations returns what the users of the kernel did that they must not do.
func (k *Kernel) Violations() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]string(nil), k.wrong...)
}

// Failed says whether a ring, or its parker, has failed for good.
func (k *Kernel) Failed() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.rings {
		if r.broken() {
			return true
		}
	}
	return false
}
