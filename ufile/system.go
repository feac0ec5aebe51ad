// SPDX-License-Identifier: MIT

package ufile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"weak"

	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/reactor"
	"github.com/ringside-io/ringside/uring"
)

// Options configure a [System]; the zero value chooses automatically.
type Options struct {
	Mode Mode
	// Reactor configures the rings.
	Reactor reactor.Options
	// Restrict limits the rings to what this package does with them: READ,
	// WRITE, FSYNC, and what package reactor needs (see [reactor.Options.Restrict]).
	// Anything else that gets hold of them is refused with EACCES. Reactor.Restrict
	// counts instead where it is set.
	Restrict bool
}

// ringOps are what this package does with rings.
var ringOps = []uring.Op{uring.OpRead, uring.OpWrite, uring.OpFsync}

// System opens files that share rings. The rings are opened when an operation
// first needs one and freed when the last file is closed, so that a program
// that never needs them never has them. All methods may be called
// concurrently.
type System struct {
	opts  Options
	rings atomic.Pointer[reactor.Reactor]
	plain atomic.Bool  // there are no rings, and there will be none unless short
	bulk  atomic.Int64 // large reads in flight that the page cache did not have

	mu     sync.Mutex
	reason string           // why plain
	short  bool             // only descriptors were missing: the next file tries again
	broken *reactor.Reactor // rings that failed, with operations in flight
	files  map[weak.Pointer[File]]struct{}
	done   Stats // of files that were closed
}

// errNoRings is why a system works without rings.
var errNoRings = errors.New("plain system calls were asked for")

// NewSystem returns a system. With ModeRing it fails where io_uring cannot be
// used, with an error that says what to change; the other modes do not fail,
// and what is no mode is an error.
func NewSystem(o Options) (*System, error) {
	if o.Mode < ModeAuto || o.Mode > ModeSyscall {
		return nil, fmt.Errorf("ufile: there is no %v", o.Mode)
	}
	if o.Restrict && o.Reactor.Restrict == nil {
		o.Reactor.Restrict = ringOps
	}
	s := &System{opts: o, files: make(map[weak.Pointer[File]]struct{})}
	err := errNoRings
	if o.Mode != ModeSyscall {
		err = usable()
	}
	if err != nil {
		if o.Mode == ModeRing {
			return nil, fmt.Errorf("ufile: rings were asked for: %w", err)
		}
		s.usePlain(err)
	}
	return s, nil
}

// usable says whether the kernel has what this package needs.
func usable() error {
	if err := features.HaveIOURing(); err != nil {
		return err
	}
	for _, op := range []uring.Op{uring.OpRead, uring.OpWrite} {
		if err := features.HaveOp(op); err != nil {
			return err
		}
	}
	return features.HaveFeature(uring.FeatExtArg)
}

// defaultSystem serves the package's own functions. It opens nothing until a
// file needs it.
var defaultSystem = sync.OnceValue(func() *System {
	s, _ := NewSystem(Options{}) // ModeAuto does not fail
	return s
})

// Backend says what the package's own functions use: "io_uring", or "syscall"
// with the reason why not io_uring.
func Backend() (name, reason string) { return defaultSystem().Backend() }

// Backend says what the system uses: "io_uring", or "syscall" with the reason
// why not io_uring.
func (s *System) Backend() (name, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason != "" {
		return "syscall", s.reason
	}
	return "io_uring", ""
}

// Open opens a file for reading, as os.Open.
func (s *System) Open(name string) (*File, error) { return s.OpenFile(name, os.O_RDONLY, 0) }

// Create creates or truncates a file, as os.Create.
func (s *System) Create(name string) (*File, error) {
	return s.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o666)
}

// OpenFile opens a file, as os.OpenFile; flag may hold syscall.O_DIRECT.
func (s *System) OpenFile(name string, flag int, perm fs.FileMode) (*File, error) {
	f, err := os.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return s.NewFile(f)
}

// Open opens a file for reading, as os.Open.
func Open(name string) (*File, error) { return defaultSystem().Open(name) }

// Create creates or truncates a file, as os.Create.
func Create(name string) (*File, error) { return defaultSystem().Create(name) }

// OpenFile opens a file, as os.OpenFile; flag may hold syscall.O_DIRECT, which
// demands offsets, lengths and buffers aligned to the device's blocks (see
// [AlignedBuffer]).
func OpenFile(name string, flag int, perm fs.FileMode) (*File, error) {
	return defaultSystem().OpenFile(name, flag, perm)
}

// reactor returns the rings, opening them when they are not open, or nil where
// they cannot be opened: the system then stays with system calls, or where only
// descriptors are missing until another file is opened. With ModeRing that is an
// error instead, and the next call tries again. The caller must keep a file of the
// system open.
func (s *System) reactor() (*reactor.Reactor, error) {
	if r := s.rings.Load(); r != nil {
		return r, nil
	}
	if s.plain.Load() {
		return nil, nil
	}
	return s.openRings()
}

func (s *System) openRings() (*reactor.Reactor, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.rings.Load(); r != nil || s.plain.Load() {
		return r, nil
	}
	var r *reactor.Reactor
	err := usable() // which a shortage may have left open
	if err == nil {
		r, err = reactor.New(s.opts.Reactor)
	}
	switch {
	case err == nil:
		s.rings.Store(r)
		return r, nil
	case s.opts.Mode == ModeRing:
		return nil, err
	}
	s.usePlain(err)
	return nil, nil
}

// usePlain goes over to system calls. The caller holds mu.
func (s *System) usePlain(why error) {
	s.reason = why.Error()
	s.short = errors.Is(why, syscall.EMFILE) || errors.Is(why, syscall.ENFILE)
	s.plain.Store(true)
}

// giveUp goes over to system calls because rings that worked have failed.
// Operations may be in flight on those that still work.
func (s *System) giveUp(r *reactor.Reactor, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rings.CompareAndSwap(r, nil) {
		s.broken = r
		s.usePlain(why)
	}
}

// adopt enters a file that was opened. The system does not keep it alive: one
// that is dropped is closed by os as any other, and forgotten here.
func (s *System) adopt(f *File) {
	f.self = weak.Make(f)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[f.self] = struct{}{}
	if s.short { // this file got a descriptor
		s.short, s.reason = false, ""
		s.plain.Store(false)
	}
	runtime.SetFinalizer(f, func(f *File) {
		go f.sys.forget(f) // may wait for the rings to close
	})
}

// forget removes a file and, with the last one, the rings. Who opens another file
// meanwhile does not wait for their end, but gets new ones.
func (s *System) forget(f *File) error {
	rings, broken := s.remove(f)
	if broken != nil {
		_ = broken.Close() // says again what reason says
	}
	if rings == nil {
		return nil
	}
	return rings.Close()
}

// remove takes a file from the list and, with the last one, the rings from the
// System: those to be closed are returned.
func (s *System) remove(f *File) (rings, broken *reactor.Reactor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.files, f.self)
	s.done.add(f.stats())
	if len(s.files) > 0 {
		return nil, nil
	}
	if broken = s.broken; broken != nil {
		s.done.Reactor = s.done.Reactor.Plus(broken.Stats())
		s.broken = nil
	}
	if rings = s.rings.Swap(nil); rings != nil {
		s.done.Reactor = s.done.Reactor.Plus(rings.Stats())
	}
	return rings, broken
}
