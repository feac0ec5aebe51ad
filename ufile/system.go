// SPDX-License-Identifier: MIT

package ufile

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/reactor"
	"github.com/ringside-io/ringside/uring"
)

// Options configure a [System]; the zero value chooses automatically.
type Options struct {
	Mode Mode
	// Reactor configures the rings.
	Reactor reactor.Options
	// Restrict limits the rings to READ, WRITE, and what package reactor needs (see
	// [reactor.Options.Restrict]). The kernel refuses every other operation on them with
	// EACCES. Reactor.Restrict, if it is set, takes precedence.
	Restrict bool
	// Logger, if it is set, receives the chosen backend at INFO. A change to plain calls
	// while the system runs is reported at WARN, to slog.Default() if Logger is nil. If
	// Reactor.Logger is nil, it is set to Logger.
	Logger *slog.Logger
}

// ringOps are the operations that this package needs, fixedOps those that it uses with Buffers.
var (
	ringOps  = []uring.Op{uring.OpRead, uring.OpWrite, uring.OpReadv, uring.OpWritev}
	fixedOps = []uring.Op{uring.OpReadFixed, uring.OpWriteFixed}
)

// System opens files that share rings. The rings are opened when two operations first
// need a ring at the same time. With ModeRing they are opened for the first operation.
// The rings are freed when the last file that was read or written at an offset is closed.
// The default system, which the package's own functions use, frees its rings 100 ms
// later. All methods may be called concurrently.
type System struct {
	opts  Options
	rings atomic.Pointer[reactor.Reactor]
	plain atomic.Bool  // rings are not used, and will not be unless short or until a time
	until atomic.Int64 // when rings without worker threads are tried again, 0 for never; Unix nanoseconds
	bulk  atomic.Int64 // large reads in flight that the page cache did not have
	alone atomic.Bool  // an operation is in flight by a plain call, and there are no rings yet

	buffers atomic.Pointer[[]*registered] // the pools; written under mu

	mu     sync.Mutex
	reason string              // why plain
	short  bool                // only descriptors were missing: the next file tries again
	warned bool                // that they were missing
	broken *reactor.Reactor    // rings that failed, with operations in flight
	files  map[*state]struct{} // that may have used the rings
	linger time.Duration       // how long rings outlive the last file
	armed  time.Time           // when the timer that closes them was started
	left   time.Time           // when the last file was closed
	done   Stats               // of files that were closed
}

// errNoRings is the reason of a system with ModePlain.
var errNoRings = errors.New("ModePlain was chosen")

// NewSystem returns a system. With ModeRing it fails where io_uring cannot be used, and
// the error names the setting to change. With ModeAuto and ModePlain it does not fail. An
// unknown mode is an error.
func NewSystem(o Options) (*System, error) {
	switch o.Mode {
	case ModeAuto, ModeRing, ModePlain:
	default:
		return nil, fmt.Errorf("ufile: unknown mode %v: want auto, io_uring or plain", o.Mode)
	}
	if o.Restrict && o.Reactor.Restrict == nil {
		o.Reactor.Restrict = slices.Concat(ringOps, fixedOps)
	}
	if o.Reactor.Logger == nil {
		o.Reactor.Logger = o.Logger
	}
	s := &System{opts: o, files: make(map[*state]struct{})}
	err := errNoRings
	if o.Mode != ModePlain {
		err = usable()
	}
	if err != nil {
		if o.Mode == ModeRing {
			return nil, fmt.Errorf("ufile: mode io_uring was chosen: %w", err)
		}
		s.usePlain(err)
	}
	if o.Logger != nil {
		name, reason := s.Backend()
		o.Logger.Info("ufile: backend chosen", "backend", name, "reason", reason)
	}
	return s, nil
}

// usable returns an error if the kernel lacks what this package needs.
func usable() error {
	if err := features.HaveIOURing(); err != nil {
		return err
	}
	for _, op := range ringOps {
		if err := features.HaveOp(op); err != nil {
			return err
		}
	}
	return features.HaveFeature(uring.FeatExtArg)
}

// defaultSystem is the system of the package's own functions. It opens no ring until
// a file needs one.
var defaultSystem = sync.OnceValue(func() *System {
	s, _ := NewSystem(Options{})      // ModeAuto does not fail
	s.linger = 100 * time.Millisecond // less than detectors of leaked goroutines wait
	return s
})

// Backend returns what the package's own functions use: "io_uring", or "plain" with the
// reason why io_uring is not used.
func Backend() (name, reason string) { return defaultSystem().Backend() }

// Backend returns what the system uses: "io_uring", or "plain" with the reason why
// io_uring is not used.
func (s *System) Backend() (name, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason != "" {
		return ModePlain.String(), s.reason
	}
	return ModeRing.String(), ""
}

// tryAlone reports whether an operation is to be a plain call, because no other operation
// is in flight and the rings are not open: opening them would take longer than the call.
// When it returns true, the caller sets alone to false afterwards.
func (s *System) tryAlone() bool {
	return s.rings.Load() == nil && !s.plain.Load() && s.alone.CompareAndSwap(false, true)
}

// reactor returns the rings, and opens them if they are not open. It returns nil where
// they cannot be opened. From then on the system uses plain calls. If only descriptors
// were missing, it tries again when another file is opened. With ModeRing the failure is
// an error instead, and the next call tries again. The caller must keep a file of the
// system open.
func (s *System) reactor() (*reactor.Reactor, error) {
	if s.plain.Load() && !s.resume() {
		return nil, nil
	}
	if r := s.rings.Load(); r != nil {
		return r, nil
	}
	return s.openRings()
}

// openRings opens the shared rings, unless they are open. With ModeAuto a failure means plain calls
// from then on, and a nil Reactor.
func (s *System) openRings() (*reactor.Reactor, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.plain.Load() {
		return nil, nil
	}
	if r := s.rings.Load(); r != nil {
		return r, nil
	}
	var r *reactor.Reactor
	err := usable() // a shortage may have prevented an earlier check
	if err == nil {
		r, err = reactor.New(s.opts.Reactor)
	}
	switch {
	case err == nil:
		s.registerBuffers(r)
		s.rings.Store(r)
		return r, nil
	case s.opts.Mode == ModeRing:
		return nil, err
	}
	s.usePlain(err)
	s.fellBack(err)
	return nil, nil
}

// pauseTime is how long plain calls replace rings that have no worker threads.
const pauseTime = time.Second

// pause switches to plain system calls for a while, because the process may not have the
// worker threads that its rings need.
func (s *System) pause(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.plain.Load() {
		return
	}
	s.usePlain(why)
	s.until.Store(time.Now().Add(pauseTime).UnixNano())
	if !s.warned {
		s.warned = true
		s.fellBack(why)
	}
}

// resume ends a pause that has lasted long enough, and reports whether it did.
func (s *System) resume() bool {
	if until := s.until.Load(); until == 0 || time.Now().UnixNano() < until {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.until.Swap(0) == 0 {
		return false
	}
	s.reason = ""
	s.plain.Store(false)
	return true
}

// fellBack logs that the system continues with plain calls. A lack of descriptors is not
// logged: the next file tries again. The caller holds mu.
func (s *System) fellBack(why error) {
	if s.short {
		return
	}
	logger := s.opts.Logger
	if logger == nil {
		logger = slog.Default()
	}
	go logger.Warn("ufile: rings cannot be used any more; plain calls are used instead", "error", why) // without mu
}

// usePlain switches to plain system calls. The caller holds mu.
func (s *System) usePlain(why error) {
	s.until.Store(0)
	s.reason = why.Error()
	s.short = errors.Is(why, syscall.EMFILE) || errors.Is(why, syscall.ENFILE)
	s.plain.Store(true)
}

// giveUp switches to plain system calls because a ring has failed. Operations may be
// in flight on other rings of the reactor.
func (s *System) giveUp(r *reactor.Reactor, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rings.CompareAndSwap(r, nil) {
		s.registerBuffers(nil)
		s.broken = r
		s.usePlain(why)
		s.fellBack(why)
	}
}

// retryRings lets the system try rings again if they could not be opened for lack of
// descriptors: the file that has just been opened got one.
func (s *System) retryRings() {
	if !s.plain.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.short {
		s.short, s.reason = false, ""
		s.plain.Store(false)
	}
}

// join adds a file that may use the rings. The system does not keep the File alive:
// a File that is dropped is closed by os, as any os.File, and removed here.
func (s *System) join(f *File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.files[f.state]; ok {
		return
	}
	s.files[f.state] = struct{}{}
	if f.lazy { // it has a cleanup
		return
	}
	f.dropped = runtime.AddCleanup(f, func(st *state) {
		go st.sys.forget(st) // may wait for the rings to close
	}, f.state)
}

// forget removes a file and, with the last one, the rings. A file that is opened
// meanwhile does not wait for their end, but gets new ones.
func (s *System) forget(f *state) error {
	rings, broken := s.remove(f)
	if broken != nil {
		_ = broken.Close() // its error is the reason, which Backend returns
	}
	if rings == nil {
		return nil
	}
	return rings.Close()
}

// remove takes a file from the list and, with the last one, the rings from the System. It
// returns the rings that the caller must close.
func (s *System) remove(f *state) (rings, broken *reactor.Reactor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.files, f)
	s.done = s.done.Plus(f.stats())
	if len(s.files) > 0 {
		return nil, nil
	}
	if broken = s.broken; broken != nil {
		s.done.Reactor = s.done.Reactor.Plus(broken.Stats())
		s.broken = nil
	}
	if s.linger > 0 && s.rings.Load() != nil {
		s.left = time.Now()
		s.closeLater()
		return nil, broken
	}
	return s.takeRings(), broken
}

// takeRings takes the rings from the System. No file may be able to use them.
// The caller holds mu.
func (s *System) takeRings() *reactor.Reactor {
	rings := s.rings.Swap(nil)
	if rings != nil {
		s.registerBuffers(nil)
		s.done.Reactor = s.done.Reactor.Plus(rings.Stats())
	}
	return rings
}

// closeLater closes the rings when no file has been open for a while. The caller
// holds mu.
func (s *System) closeLater() {
	if now := time.Now(); now.Sub(s.armed) >= s.linger { // no timer is running
		s.armed = now
		time.AfterFunc(s.linger, s.closeIdle)
	}
}

// closeIdle closes the rings if no file was open for the time that they linger.
func (s *System) closeIdle() {
	s.mu.Lock()
	s.armed = time.Time{}
	var rings *reactor.Reactor
	switch {
	case len(s.files) > 0: // closing the last of them starts a timer
	case time.Since(s.left) < s.linger:
		s.closeLater()
	default:
		rings = s.takeRings()
	}
	s.mu.Unlock()
	if rings != nil {
		_ = rings.Close() // no call can have an operation in flight
	}
}

// Mode is how a [System] reads and writes: ModeAuto, ModeRing or ModePlain.
type Mode = features.Mode

const (
	// ModeAuto chooses for each operation, and uses plain system calls where
	// io_uring cannot be used.
	ModeAuto = features.ModeAuto
	// ModeRing sends every positional read and write of regular files and block devices
	// through a ring. Where the kernel cannot read the file without blocking, the ring
	// passes them to its worker threads. Regular files that can be polled, such as files
	// of FUSE, are read and written by plain system calls: a ring returns wrong counts
	// for them at the end of the file (Linux 6.18).
	ModeRing = features.ModeRing
	// ModePlain uses plain system calls only.
	ModePlain = features.ModePlain
)

// Stats counts the paths that positional reads and writes took. A call that took several
// paths, because a part of its data was cached, counts in each.
type Stats struct {
	Cached uint64 `json:"cached"` // reads served by the page cache without blocking
	Plain  uint64 `json:"plain"`  // plain system calls; those for small cached reads are counted by one in many of them
	Ring   uint64 `json:"ring"`   // operations through a ring
	Fixed  uint64 `json:"fixed"`  // those of Ring with registered memory of a Buffers (READ_FIXED, WRITE_FIXED)
	// Reactor holds the counters of the rings.
	Reactor reactor.Stats `json:"reactor"`
}

// Plus returns the sum of two sets of counters.
func (s Stats) Plus(t Stats) Stats {
	return Stats{Cached: s.Cached + t.Cached, Plain: s.Plain + t.Plain, Ring: s.Ring + t.Ring,
		Fixed: s.Fixed + t.Fixed, Reactor: s.Reactor.Plus(t.Reactor)}
}

// Stats returns the counters of all files that the system has opened. A file that was
// read only once is not counted before it is closed.
func (s *System) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := s.done
	for f := range s.files {
		sum = sum.Plus(f.stats())
	}
	for _, r := range []*reactor.Reactor{s.rings.Load(), s.broken} {
		if r != nil {
			sum.Reactor = sum.Reactor.Plus(r.Stats())
		}
	}
	return sum
}

// Total returns the counters of the default system, which the package's own
// functions use.
func Total() Stats { return defaultSystem().Stats() }

// Stats returns the counters of one file. Its Reactor field is zero, because files share
// the rings.
func (f *File) Stats() Stats { return f.stats() }

func (f *state) stats() Stats {
	fixed := f.fixed.Load()
	return Stats{Cached: f.cached.Load(), Plain: f.plain.Load(), Ring: f.ringed.Load() + fixed, Fixed: fixed}
}
