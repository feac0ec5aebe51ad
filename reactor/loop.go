// SPDX-License-Identifier: MIT

package reactor

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/ringside-io/ringside/internal/inflight"
	"github.com/ringside-io/ringside/uring"
)

// loop is one ring with its operations.
type loop struct {
	opts   *Options
	number int
	ring   ring
	park   parker
	table  *inflight.Table[entry]
	busy   atomic.Int64 // operations, and plain calls in their place

	visitor atomic.Uintptr // the stack of who came last, a hint

	room     token        // a slot was released while somebody starves
	starved  atomic.Int32 // how many wait for room
	idle     token        // the last slot was released while somebody drains
	draining atomic.Bool
	gather   token // the right to take the slots of a group

	mu       sync.Mutex   // the submission side
	leading  bool         // somebody will flush
	pending  []*uring.SQE // not yet taken by the kernel
	size     int          // of the submission queue
	bytes    int          // that the kernel may copy while it takes what is pending
	failed   error        // why the ring cannot be used any more
	shut     bool         // no operation may start
	closing  bool         // and none may start again
	refused  atomic.Bool  // entries are pending that the kernel did not take
	retrying bool         // a timer will try again
	turns    uint         // submissions; see mayGather
	asleep   bool         // pinned: the thread is in the kernel or about to be
	backlog  []chore      // to be entered later
	chores   atomic.Bool  // the backlog is not empty; written under mu
	choring  bool         // somebody is entering the backlog
	cancels  uint32       // entries of users that may have cancelled others
	space    *sync.Cond   // with mu: the kernel has taken entries

	reaping sync.Mutex // the completion side
	batch   [reapBatch]uring.CQE
	spilled bool // the last batch found that completions had overflowed
	gone    bool // the ring is closed; written under both locks

	registering sync.Mutex     // of a shared loop: who calls the ring's register functions
	errands     []*errand      // under mu, of a pinned loop: what its thread is to register
	stores      []*store       // under mu
	pools       [mostPools]int // under mu: bytes of each pool that are registered
	fileSlots   int            // of who may use the ring: the size of its table of files
	hasTable    bool           // of who may use the ring: it has a table of buffers

	calls  calls
	shadow shadow
	groups sync.Pool // of *group
	delays delays
	stats  counters

	wakeEntry uring.SQE     // pinned: completes after a Wake
	wakeSpent bool          // pinned, of the thread: wakeEntry has to be entered
	thread    chan struct{} // pinned: closed when the thread is done
	stopping  bool          // under mu
	closed    error         // what closing the ring on the thread answered
}

// newLoop opens loop number i.
func newLoop(o *Options, i int, first ring) (*loop, error) {
	l := &loop{opts: o, number: i, room: newToken(), idle: newToken(), gather: newToken()}
	l.space = sync.NewCond(&l.mu)
	l.gather.put()
	l.table = inflight.New(o.InFlight, func(v *entry) { v.done = make(chan struct{}, 1) })
	l.groups.New = newGroup
	l.calls.init()
	err := l.startLoop(i, first)
	if err == nil {
		l.shadow.start()
	}
	return l, err
}

// startLoop opens the ring and starts who serves it.
func (l *loop) startLoop(i int, first ring) error {
	if l.opts.Pinned {
		return l.startPinned(i, first)
	}
	if err := l.openRing(i, first); err != nil {
		return err
	}
	if err := l.park.start(l.reapParked, l.failParked); err != nil {
		_ = l.ring.Close()
		return err
	}
	return nil
}

// openRing opens ring number i.
func (l *loop) openRing(i int, first ring) (err error) {
	if l.ring, l.park, err = l.opts.open(l.opts, i, first); err == nil {
		l.size = l.ring.SQSpace()
	}
	return err
}

// tryAcquire takes a slot, if there is one. Where the ring has failed there may
// never be one again, as what the kernel has taken keeps its own.
func (l *loop) tryAcquire() (*slot, error) {
	if s, ok := l.table.Acquire(); ok {
		return s, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.refuse(); err != nil {
		return nil, err
	}
	return nil, ErrFull
}

// acquire takes a slot. When the table is full it waits, until ctx is done.
func (l *loop) acquire(ctx context.Context) (*slot, error) {
	if s, ok := l.table.Acquire(); ok {
		return s, nil
	}
	l.starved.Add(1)
	defer l.starved.Add(-1)
	l.stats.waits.Add(1)
	for {
		l.mu.Lock()
		err := l.refuse()
		l.mu.Unlock()
		s, ok := l.table.Acquire()
		if err == nil && !ok {
			select {
			case <-l.room:
				continue
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		if l.starved.Load() > 1 {
			l.room.put() // there may be more, or news, for the next
		}
		if err != nil && ok {
			l.release(s)
		}
		return s, err
	}
}

// release gives a slot back and with it the references that it held. It takes
// no lock.
func (l *loop) release(s *slot) {
	v := &s.Value
	if v.doomed {
		return // for ever
	}
	v.timeout.disarm()
	if v.store != nil {
		v.store.group.left()
	}
	v.gave()
	v.disown()
	v.use = use{}
	l.table.Release(s)
	if l.starved.Load() > 0 {
		l.room.put()
	}
	if l.draining.Load() && l.table.Held() == 0 {
		l.idle.put()
	}
}

// refuse says why no operation can start. The caller holds mu.
func (l *loop) refuse() error {
	if l.shut {
		return ErrClosed
	}
	return l.failed
}
