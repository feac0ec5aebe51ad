// SPDX-License-Identifier: MIT

package watch

import (
	"fmt"
	"log/slog"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/internal/sys"
)

// ErrClosed is returned by a closed watcher. It matches os.ErrClosed.
var ErrClosed error = closedError{}

type closedError struct{}

func (closedError) Error() string { return "watch: closed" }

func (closedError) Is(target error) bool { return target == os.ErrClosed }

// errWaiting reports a misuse: Wait is called twice at a time.
var errWaiting = fmt.Errorf("watch: another goroutine is in Wait")

// Mode selects the backend of a [Watcher]: ModeAuto, ModeEpoll or ModeRing.
type Mode = features.Mode

const (
	// ModeAuto is the backend that RINGSIDE_BACKEND names, otherwise io_uring where
	// deferred task work is available, otherwise epoll.
	ModeAuto = features.ModeAuto
	// ModeEpoll requires epoll: [New] fails where it cannot be used.
	ModeEpoll = features.ModeEpoll
	// ModeRing requires io_uring: [New] fails where it cannot be used.
	ModeRing = features.ModeRing
)

// Options configure a [Watcher]; the zero value chooses automatically.
type Options struct {
	Mode Mode
	// Batch is the largest number of descriptors that one Dispatch reports; 0 means
	// 1024. The next turn reports the others.
	Batch int
	// Restrict limits the ring to the operations of a watcher: POLL_ADD, POLL_REMOVE
	// and ASYNC_CANCEL. The kernel refuses all others with EACCES. It has no effect on
	// epoll.
	Restrict bool
	// Logger receives the chosen backend at INFO, if it is set. A change to epoll while
	// the watcher runs is reported at WARN, to slog.Default() if Logger is nil.
	Logger *slog.Logger
}

// Watcher watches descriptors. See the package comment for its contract and for
// the methods that may be called concurrently.
type Watcher struct {
	table
	backend     backend
	name        Mode
	reason      string
	chosen      bool // the backend was not asked for by name
	opts        Options
	dispatching bool
	prepared    bool // between Prepare and Dispatch

	state  atomic.Uint32
	waited chan struct{} // closed by a Wait that finds the watcher closed
	wakeMu sync.Mutex    // keeps Wake from what Close frees
	freed  bool

	choiceMu sync.Mutex // guards name and reason, which Backend reads at any time

	count struct {
		turns, events, enters, moves atomic.Uint64
		watched                      atomic.Int64
	}
}

// Stats are counters of a [Watcher] since it was opened.
type Stats struct {
	Turns   uint64 `json:"turns"`   // calls of Dispatch
	Events  uint64 `json:"events"`  // descriptors that they reported
	Enters  uint64 `json:"enters"`  // calls of io_uring_enter or epoll_wait
	Moves   uint64 `json:"moves"`   // times that the goroutine had moved to another thread, where the watcher opened a ring
	Watched int    `json:"watched"` // descriptors registered at the last Dispatch
}

// Plus returns the sum of two sets of counters.
func (s Stats) Plus(t Stats) Stats {
	return Stats{
		Turns: s.Turns + t.Turns, Events: s.Events + t.Events, Enters: s.Enters + t.Enters,
		Moves: s.Moves + t.Moves, Watched: s.Watched + t.Watched,
	}
}

// Stats returns the counters. It may be called by any goroutine at any time.
func (w *Watcher) Stats() Stats {
	c := &w.count
	return Stats{
		Turns: c.turns.Load(), Events: c.events.Load(), Enters: c.enters.Load(),
		Moves: c.moves.Load(), Watched: int(c.watched.Load()),
	}
}

// Bits of Watcher.state.
const (
	stClosed uint32 = 1 << iota
	stWaiting
	stWoken // by Wake; the Wait in progress, or the next one, ends
)

// New opens a watcher. If the options, or RINGSIDE_BACKEND, name a backend that cannot be
// used, the error has the reason and, for a policy, the setting to change. On systems
// other than Linux it matches errors.ErrUnsupported.
func New(o Options) (*Watcher, error) {
	if o.Batch <= 0 {
		o.Batch = 1024
	}
	w := &Watcher{opts: o, waited: make(chan struct{})}
	if err := w.choose(); err != nil {
		return nil, err
	}
	if o.Logger != nil {
		o.Logger.Info("watch: backend chosen", "backend", w.name.String(), "reason", w.reason)
	}
	return w, nil
}

// choose opens the backend that the options or the environment name, or the one
// that works.
func (w *Watcher) choose() error {
	b, by := w.opts.Mode, "the options"
	if b == ModeAuto {
		var err error
		if b, err = features.ParseMode(os.Getenv(features.EnvBackend)); err != nil {
			return fmt.Errorf("watch: %w (%s)", err, features.EnvBackend)
		}
		if by = features.EnvBackend; b != ModeRing && b != ModeEpoll {
			b = ModeAuto
		}
	}
	reason := "chosen by " + by
	switch b {
	case ModeRing:
		return w.useRing(reason)
	case ModeEpoll:
		return w.useEpoll(reason)
	case ModeAuto:
		w.chosen = true
		err := w.useRing("the kernel defers task work to the thread that waits")
		if err == nil {
			return nil
		}
		return w.useEpoll("io_uring cannot be used: " + err.Error())
	}
	return fmt.Errorf("watch: unknown mode %v: want auto, io_uring or epoll", b)
}

// useRing makes a ring the backend, or returns why there is none.
func (w *Watcher) useRing(reason string) error {
	if err := haveRing(); err != nil {
		return fmt.Errorf("watch: io_uring: %w", err)
	}
	b, err := newRing(w)
	if err != nil {
		return fmt.Errorf("watch: io_uring: %w", err)
	}
	w.use(b, ModeRing, reason)
	return nil
}

func (w *Watcher) useEpoll(reason string) error {
	b, err := newEpoll(&w.table, w.opts.Batch, &w.count.enters)
	if err != nil {
		return fmt.Errorf("watch: epoll: %w", err)
	}
	w.use(b, ModeEpoll, reason)
	return nil
}

func (w *Watcher) use(b backend, name Mode, reason string) {
	w.choiceMu.Lock()
	defer w.choiceMu.Unlock()
	w.backend, w.name, w.reason = b, name, reason
	w.looksAgain = name == ModeRing
}

// giveUp replaces the ring by epoll. If epoll lacks memory or watches, the ring stays, and the
// next turn tries again.
func (b *ringBackend) giveUp(why error) error {
	w := b.w
	by, err := newEpoll(&w.table, w.opts.Batch, &w.count.enters)
	if err != nil {
		return fmt.Errorf("watch: epoll: %w", err)
	}
	for fd := range b.t.entries {
		if e := &b.t.entries[fd]; e.on && !e.gone {
			switch errno := by.add(fd, e); errno {
			case syscall.ENOMEM, syscall.ENOSPC:
				_ = by.close()
				return failed("add", fd, errno)
			} // others are for closed files, whose end is not reported
		}
	}
	w.wakeMu.Lock()
	defer w.wakeMu.Unlock()
	w.use(by, ModeEpoll, "io_uring was given up: "+why.Error())
	logger := w.opts.Logger
	if logger == nil {
		logger = slog.Default()
	}
	go logger.Warn("watch: io_uring cannot be used any more; epoll is used instead", "error", why) // without the caller's lock
	for fd := range b.t.entries {
		e := &b.t.entries[fd]
		e.armed, e.queued = false, false
	}
	b.t.changes = nil
	_ = b.close()
	return nil
}

// Add registers fd. Its events, and always [Error] and [HangUp], are reported according to
// the trigger, each with value. Present readiness is reported as well.
//
// Errors: EEXIST when the number is registered (see the package comment), EBADF when it
// is not open, EPERM when the file cannot be polled, EINVAL for unknown events or
// triggers, ENOMEM, ENOSPC (epoll: the user's limit of watches is reached); ErrClosed.
func (w *Watcher) Add(fd int, interest Events, trigger Trigger, value any) error {
	if err := w.usable(); err != nil {
		return err
	}
	switch {
	case interest&^known != 0 || trigger > OneShot:
		return failed("add", fd, syscall.EINVAL)
	case fd < 0 || fd > math.MaxInt32:
		return failed("add", fd, syscall.EBADF)
	case w.at(fd) != nil:
		return failed("add", fd, syscall.EEXIST)
	case fd >= len(w.entries): // an absurd number must not cost memory
		if _, _, errno := sys.FileMode(fd); errno != 0 {
			return failed("add", fd, errno)
		}
	}
	e := w.grow(fd)
	e.turn()
	e.value, e.interest, e.mode, e.on = value, interest, trigger, true
	w.n++
	if errno := w.backend.add(fd, e); errno != 0 {
		w.forget(e)
		return failed("add", fd, errno)
	}
	w.nudge()
	return nil
}

// Modify replaces the events, the trigger and the value of a registered descriptor.
// Present readiness is reported again, so it makes OneShot report again.
//
// Errors: ENOENT when fd is not registered, EINVAL as for Add, other errors when its
// file has been closed; ErrClosed.
func (w *Watcher) Modify(fd int, interest Events, trigger Trigger, value any) error {
	if err := w.usable(); err != nil {
		return err
	}
	if interest&^known != 0 || trigger > OneShot {
		return failed("modify", fd, syscall.EINVAL)
	}
	e := w.at(fd)
	if e == nil {
		return failed("modify", fd, syscall.ENOENT)
	}
	before := *e
	e.value, e.interest, e.mode = value, interest, trigger
	e.spent, e.found = false, 0 // the kernel reports again what lasts
	if errno := w.backend.modify(fd, e, before.mode); errno != 0 {
		*e = before
		return failed("modify", fd, errno)
	}
	w.nudge()
	return nil
}

// Remove ends a registration. No event of it is reported afterwards. The file may have
// been closed. Errors: ENOENT when fd is not registered; ErrClosed.
func (w *Watcher) Remove(fd int) error {
	if err := w.usable(); err != nil {
		return err
	}
	e := w.at(fd)
	if e == nil {
		return failed("remove", fd, syscall.ENOENT)
	}
	w.backend.remove(fd, e)
	w.forget(e)
	w.nudge()
	return nil
}

// FD returns the descriptor of a file, connection or listener of package os, net or
// unet, for Add. It does not change the descriptor, whereas the method Fd of these
// types makes it blocking. The descriptor belongs to c: keep c reachable while the
// descriptor is watched, and call Remove before closing c. Read and write with calls
// that return EAGAIN, such as syscall.Read, because the methods of c would wait. FD
// returns an error when c is closed.
func FD(c syscall.Conn) (int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd := -1
	err = raw.Control(func(p uintptr) { fd = int(p) })
	return fd, err
}

// Len returns the number of registered descriptors.
func (w *Watcher) Len() int { return w.n }

// Prepare begins a turn: it prepares changes for the kernel, which Wait submits.
// Errors: ErrClosed, or errors of the kernel. After an error of the kernel the next
// turn submits the changes.
func (w *Watcher) Prepare() error {
	if err := w.usable(); err != nil {
		return err
	}
	w.prepared = true
	return w.backend.prepare()
}

// Wait waits until a descriptor is ready, for at most timeout. A negative timeout means
// no limit; with 0 Wait does not wait. An expired timeout is not an error. A signal
// does not end the wait. Wait can return early: after Wake, after changes by other
// goroutines, or without a reason; Dispatch then reports nothing. It returns at once if
// events of the last turn have not been dispatched.
//
// Errors: ErrClosed, also when Close is called meanwhile; other errors come from the
// kernel and are not expected.
func (w *Watcher) Wait(timeout time.Duration) error {
	for {
		s := w.state.Load()
		switch {
		case s&stClosed != 0:
			return ErrClosed
		case s&stWaiting != 0:
			return errWaiting
		}
		if w.state.CompareAndSwap(s, s|stWaiting) {
			if s&stWoken != 0 {
				timeout = 0
			}
			break
		}
	}
	err := w.backend.wait(timeout)
	if w.state.And(^(stWaiting|stWoken))&stClosed != 0 {
		if b, ok := w.backend.(*ringBackend); ok {
			b.release() // Close, which waits, may be on another thread
		}
		close(w.waited)
		return ErrClosed
	}
	return err
}

// Dispatch ends a turn: it calls f for each ready descriptor, in the order that the
// package comment describes, and returns their number. f may call all methods but
// Prepare, Wait, Dispatch and Poll. After f has closed the watcher nothing more is
// reported. If f panics, the next Dispatch reports the remaining descriptors.
func (w *Watcher) Dispatch(f func(Event)) int {
	if w.usable() != nil {
		return 0
	}
	w.prepared = false
	w.backend.collect()
	w.count.turns.Add(1)
	if n := int64(w.n); n != w.count.watched.Load() {
		w.count.watched.Store(n)
	}
	if len(w.found) == 0 {
		return 0
	}
	w.dispatching = true
	defer w.endDispatch()
	n := 0
	if w.writers > 0 {
		n = w.dispatch(f, Write)
	}
	n += w.dispatch(f, ^Events(0))
	w.found, w.writers = w.found[:0], 0
	w.count.events.Add(uint64(n))
	return n
}

// dispatch calls f for the found events that have one of class.
func (w *Watcher) dispatch(f func(Event), class Events) int {
	n := 0
	for _, fd := range w.found {
		e := &w.entries[fd]
		found := e.found
		if found&class == 0 {
			continue
		}
		if w.state.Load()&stClosed != 0 {
			break
		}
		e.found = 0
		switch e.mode {
		case OneShot:
			e.spent = true
		case Level:
			if w.looksAgain {
				w.served = append(w.served, fd)
			}
		}
		n++
		f(Event{int(fd), found, e.value})
	}
	return n
}

func (w *Watcher) endDispatch() {
	w.dispatching = false
	if w.state.Load()&stClosed != 0 {
		_ = w.free() // no later call depends on the result
	}
}

// Poll makes one turn: Prepare, Wait and Dispatch. It returns the number of reported
// descriptors; 0 means that the timeout has expired or that the wait ended early.
func (w *Watcher) Poll(timeout time.Duration, f func(Event)) (int, error) {
	if err := w.Prepare(); err != nil {
		return 0, err
	}
	if err := w.Wait(timeout); err != nil {
		return 0, err
	}
	return w.Dispatch(f), nil
}

// Wake ends the Wait in progress, or else the next one. Several calls before
// that Wait returns count as one. It may be called by any goroutine at any
// time; on a closed watcher it does nothing.
func (w *Watcher) Wake() {
	if s := w.state.Or(stWoken); s&(stWoken|stWaiting) != stWaiting {
		return // no goroutine waits, or it has been woken
	}
	w.wakeMu.Lock()
	defer w.wakeMu.Unlock()
	if !w.freed {
		w.backend.wake()
	}
}

// nudge ends the Wait of a turn that has been prepared, if later changes would otherwise
// be delayed until the next turn.
func (w *Watcher) nudge() {
	if w.prepared && w.name == ModeRing {
		w.Wake()
	}
}

// Close frees the watcher. The watched descriptors stay open. A Wait in progress returns
// ErrClosed, and Close waits for that. In a callback Close returns at once, and Dispatch
// frees the watcher. Further calls do nothing.
//
// With io_uring, and without a Wait in progress, call Close on the thread that has called
// Wait. On another thread the kernel holds the watched files a little longer, even if they
// are closed meanwhile: the address of a listener is still in use.
func (w *Watcher) Close() error {
	s := w.state.Or(stClosed)
	if s&stClosed != 0 {
		return nil
	}
	if s&stWaiting != 0 {
		w.wakeMu.Lock()
		w.backend.wake()
		w.wakeMu.Unlock()
		<-w.waited
	}
	if w.dispatching {
		return nil
	}
	return w.free()
}

func (w *Watcher) free() error {
	w.wakeMu.Lock()
	defer w.wakeMu.Unlock()
	w.freed = true
	err := w.backend.close()
	w.table = table{}
	return err
}

// Backend returns the backend in use, "epoll" or "io_uring", and the reason. It may be
// called by any goroutine at any time.
func (w *Watcher) Backend() (name, reason string) {
	w.choiceMu.Lock()
	defer w.choiceMu.Unlock()
	return w.name.String(), w.reason
}

func (w *Watcher) usable() error {
	if w.state.Load()&stClosed != 0 {
		return ErrClosed
	}
	return nil
}

// failed returns an error for errno that names the failed call and the descriptor.
func failed(what string, fd int, errno syscall.Errno) error {
	return sys.Error(fmt.Sprintf("watch: %s descriptor %d", what, fd), errno)
}
