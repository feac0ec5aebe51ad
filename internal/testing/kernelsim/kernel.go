// SPDX-License-Identifier: MIT

package kernelsim

import (
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/uring"
)

// Options configure a kernel.
type Options struct {
	Seed   uint64
	Faults Faults
	Bugs   Bugs
	Plan   Plan
	// Memory, if not nil, replaces the memory at an address in an SQE.
	Memory func(addr uint64, n int) []byte
	// BusyOnOverflow makes submissions return EBUSY while overflowed completions wait, as kernels
	// up to 5.18 do.
	BusyOnOverflow bool
	// Host, if not nil, runs the operations of direct rings on descriptors of the process. Those
	// are below FirstFD, where the kernel's own descriptors begin.
	Host    Host
	FirstFD int
}

// Kernel is the state shared by the rings of one test. Its methods may be called concurrently. As a
// [sys.Simulator] it serves the rings that package uring opens.
type Kernel struct {
	o Options

	mu      sync.Mutex
	ended   *sync.Cond // signalled when an operation ends
	order   dice
	tasks   *tasks
	objects []*object
	outside map[int32]*object // by descriptor of the process
	rings   []front
	live    live
	pages   map[uint64][]*op // operations in flight, by the pages of their buffers
	results map[uint64]*Result
	wrong   []string
	trace   trace
	bugs    bugState
	cancels uint64
	poll    poller
	done    sync.WaitGroup
}

// New starts a kernel. It has goroutines until [Kernel.Close].
func New(o Options) *Kernel {
	k := &Kernel{o: o, results: make(map[uint64]*Result), outside: make(map[int32]*object), pages: make(map[uint64][]*op)}
	if o.Memory == nil {
		k.o.Memory = sys.At[byte]
	}
	k.ended = sync.NewCond(&k.mu)
	k.order = k.dice(ofKernel, 0)
	k.tasks = newTasks(&k.mu, k.order.Rand)
	k.bugs.left = o.Bugs
	k.nothing() // descriptor 0 is not an object
	k.done.Go(k.tasks.run)
	return k
}

// Settle waits until no operation of a closed ring is in flight. Until then the kernel uses the
// memory of the operations.
func (k *Kernel) Settle() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for slices.ContainsFunc(k.live.all, func(o *op) bool { return o.ring.base().closed }) {
		k.ended.Wait()
	}
}

// Close ends the kernel's goroutines and waits for them. Rings that package uring has opened should
// be closed before. Close calls Settle first.
func (k *Kernel) Close() {
	if k.polls() {
		k.Settle()
	}
	k.mu.Lock()
	k.tasks.stop()
	k.poll.wake()
	k.mu.Unlock()
	k.done.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, o := range k.live.all {
		o.drop()
		o.release()
	}
	for _, r := range k.rings {
		r.silence()
	}
	k.poll.close()
}

// soon calls a function after a number of steps. The caller holds mu.
func (k *Kernel) soon(steps int, run func()) { k.tasks.spread(steps, nil, run) }

func (k *Kernel) spread(steps int, tick, run func()) { k.tasks.spread(steps, tick, run) }

// later calls a function after a time. The caller holds mu.
func (k *Kernel) later(d time.Duration, run func()) *time.Timer { return k.tasks.later(d, run) }

// violation records that a user of the kernel broke a rule. The caller holds mu.
func (k *Kernel) violation(format string, args ...any) {
	s := fmt.Sprintf(format, args...)
	k.trace.add(event{what: "violation"})
	if len(k.wrong) < 20 {
		k.wrong = append(k.wrong, s)
	}
}

// Violations returns the rules that users of the kernel broke.
func (k *Kernel) Violations() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.wrong)
}

// Failed reports whether a ring, or its parker, has failed for good.
func (k *Kernel) Failed() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.ContainsFunc(k.rings, func(r front) bool { return r.base().broken() })
}

// Unmapped implements [sys.Simulator].
func (k *Kernel) Unmapped(addr uint64, size int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, o := range k.live.all {
		if o.uses(addr, size) {
			k.violation("memory is unmapped while %v has it", o)
		}
	}
}

// front is one of the two front ends of the kernel: a [Ring], which replaces [uring.Ring], or a
// ring below package uring whose memory and system calls are the kernel's. Its methods are called
// with mu held.
type front interface {
	base() *ringBase
	take() *op     // the next published SQE
	push(p posted) // a completion appears
	full() bool    // the next completion overflows
	signal()       // wake the waiters
	silence()      // the kernel is closing
}

// ringBase is the state of both front ends. The kernel's mu guards it.
type ringBase struct {
	k        *Kernel
	id       int
	hooked   bool // below package uring
	submits  uint64
	refusing int
	refusal  error
	arrived  *sync.Cond
	backlog  []posted // completions that overflowed
	failed   bool
	unparked bool // the parker has failed
	closed   bool
	left     int // operations with a tag in flight at Close
	groups   map[uint16]*group
	fixed    []span        // registered buffers
	limits   *restrictions // nil for none
}

func (b *ringBase) base() *ringBase { return b }

// broken reports whether the ring, or its parker, has failed for good.
func (b *ringBase) broken() bool { return b.failed || b.unparked }

// posted is a completion.
type posted struct {
	cqe      uring.CQE
	stale    bool // a repetition
	overflow bool // it finds the queue full
	accepted bool // the result is the descriptor of a connection
}

// fail makes every later enter of a ring fail. The caller holds mu.
func (k *Kernel) fail(r front) {
	b := r.base()
	b.failed = true
	k.trace.add(event{what: "fatal", ring: b.id})
	k.holdAll(r)
	r.signal()
}

// closing ends the operations in flight of a ring some time later. Their memory is in use until
// then. That is a violation unless the ring has failed. The caller holds mu.
func (k *Kernel) closing(r front) {
	b := r.base()
	for _, o := range slices.Clone(k.live.all) {
		if o.ring != r {
			continue
		}
		if o.tag() != 0 {
			b.left++
		}
		if !b.broken() && (!b.hooked || o.owns()) {
			k.violation("ring %d closed with an operation in flight: %v", b.id, o)
		}
		o.leave()
		if o.state == running || o.state == waiting {
			o.state = ending
			end := func() {
				k.spread(1+k.order.IntN(20), o.scribble, func() { k.finish(o, -int32(syscall.ECANCELED)) })
			}
			if b.hooked {
				o.scribble()
				k.later(moment, end)
			} else {
				end()
			}
		}
	}
	b.closed = true
	k.trace.add(event{what: "close", ring: b.id})
}
