// SPDX-License-Identifier: MIT

package simkern

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/kernelsim"
)

// Options configure a kernel.
type Options struct {
	Seed uint64
	Plan Plan
}

// Kernel simulates the rings that are opened while it is the simulator of package
// sys. Its methods may be called concurrently.
type Kernel struct {
	o Options

	mu     sync.Mutex
	ended  *sync.Cond // an operation has
	dice   *rand.Rand
	chores *kernelsim.Chores
	rings  []*ring
	ops    []*op // alive
	poll   poller
	wrong  []string
	counts map[string]int
	done   sync.WaitGroup
}

// New starts a kernel, which has goroutines until [Kernel.Close].
func New(o Options) (*Kernel, error) {
	k := &Kernel{o: o, dice: rand.New(rand.NewPCG(o.Seed, 1)), counts: make(map[string]int)}
	k.ended = sync.NewCond(&k.mu)
	k.chores = kernelsim.NewChores(&k.mu, k.dice)
	if err := k.poll.open(); err != nil {
		return nil, err
	}
	k.done.Go(k.chores.Run)
	k.done.Go(k.listen)
	return k, nil
}

// Settle waits until nothing is in flight that belongs to rings that are closed:
// its memory is the kernel's until then.
func (k *Kernel) Settle() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for slices.ContainsFunc(k.ops, func(o *op) bool { return o.ring.closed }) {
		k.ended.Wait()
	}
}

// Close settles, and ends everything. Rings should be closed by then.
func (k *Kernel) Close() {
	k.Settle()
	k.mu.Lock()
	k.chores.Stop()
	k.mu.Unlock()
	sys.Signal(k.poll.bell)
	k.done.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, o := range k.ops {
		o.release()
	}
	for _, r := range k.rings {
		r.silence()
	}
	k.poll.close()
}

// spread does something after a number of steps. The caller holds mu.
func (k *Kernel) spread(steps int, tick, run func()) { k.chores.Spread(steps, tick, run) }

// moment is how late something is that comes late.
const moment = 300 * time.Microsecond

// later does something after a time. The caller holds mu.
func (k *Kernel) later(d time.Duration, run func()) *time.Timer { return k.chores.Later(d, run) }

// violation keeps what a user of the kernel did wrong. The caller holds mu.
func (k *Kernel) violation(format string, args ...any) {
	if len(k.wrong) < 20 {
		k.wrong = append(k.wrong, fmt.Sprintf(format, args...))
	}
}

// Violations returns what the users of the kernel did that they must not do.
func (k *Kernel) Violations() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.wrong)
}

// Counts returns how often each operation, and each thing that is rare, has
// happened.
func (k *Kernel) Counts() map[string]int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.counts)
}

// Unmapped implements [sys.Simulator].
func (k *Kernel) Unmapped(addr uint64, size int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, o := range k.ops {
		if o.uses(addr, size) {
			k.violation("memory is unmapped while %v has it", o)
		}
	}
}
