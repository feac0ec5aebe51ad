// SPDX-License-Identifier: MIT

package kernelsim

import (
	"fmt"
	"sync"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
)

// Options configure a kernel.
type Options struct {
	Seed   uint64
	Faults Faults
	Bugs   Bugs
	Plan   Plan
	// Memory, when not nil, answers with other memory for an address that an entry
	// carries than what is there.
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
	order    dice
	chores   *Chores
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
	done     chan struct{}
}

// New starts a kernel. It has one goroutine, until [Kernel.Close].
func New(o Options) *Kernel {
	k := &Kernel{o: o, outcomes: make(map[uint64]*Outcome), hosts: make(map[int32]*object), pages: make(map[uint64][]*op), done: make(chan struct{})}
	if o.Memory == nil {
		k.o.Memory = sys.At[byte]
	}
	k.order = k.dice(ofKernel, 0)
	k.chores = NewChores(&k.mu, k.order.Rand)
	k.bugs.left = o.Bugs
	k.nothing() // descriptor 0 is no object
	go func() {
		defer close(k.done)
		k.chores.Run()
	}()
	return k
}

// Close ends the kernel's goroutine and waits for it.
func (k *Kernel) Close() {
	k.mu.Lock()
	k.chores.Stop()
	k.mu.Unlock()
	<-k.done
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, o := range k.live.all {
		o.drop()
	}
}

// soon does something after a number of steps. The caller holds mu.
func (k *Kernel) soon(steps int, run func()) { k.chores.Spread(steps, nil, run) }

func (k *Kernel) spread(steps int, tick, run func()) { k.chores.Spread(steps, tick, run) }

// later does something after a time. The caller holds mu.
func (k *Kernel) later(d time.Duration, run func()) *time.Timer { return k.chores.Later(d, run) }

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

// Failed reports whether a ring, or its parker, has failed for good.
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
