// SPDX-License-Identifier: MIT

package unet

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/uring"
)

// Options configure a [System]; the zero value chooses automatically.
type Options struct {
	Mode Mode
	// Loops is the number of drivers. The sockets are distributed over them. 0 means one
	// for every four processors (GOMAXPROCS), and at least one.
	Loops int
	// Spin limits how long a driver with few active sockets polls for events before it
	// sleeps. 0 means 100 µs, and a negative value means no polling: for processors that are
	// shared with other programs, and for tests that count system calls. After polls without
	// events the driver polls less often. It does not poll when at most one of its
	// sockets is active.
	Spin time.Duration
	// Restrict limits the rings to RECV, the only operation that this package
	// uses. The kernel refuses all others with EACCES.
	Restrict bool
	// Logger, if it is set, receives the chosen backend at INFO. A ring that fails while
	// the system runs is reported at WARN, to slog.Default() if Logger is nil.
	Logger *slog.Logger
}

// spin returns the limit in effect.
func (o *Options) spin() time.Duration {
	switch {
	case o.Spin == 0:
		return 100 * time.Microsecond
	case o.Spin < 0:
		return 0
	}
	return o.Spin
}

// System is a set of drivers that connections and listeners share. The drivers start with the
// first socket. When the last socket is closed, they stop and their resources are freed.
// The drivers of the default system stop 100 to 200 ms later, so that a program that
// dials again and again does not start them each time. All methods may be called concurrently.
type System struct {
	opts   Options
	mode   Mode // after the choice; never ModeAuto
	reason string

	linger time.Duration // how long the drivers outlive the last socket

	mu    sync.Mutex
	users int
	used  bool // a socket was opened since the timer was set
	timed bool // a timer runs that calls stopIdle
	loops []*loop
	next  int
	pipes []*pipe // empty, for copies between sockets
	ended Stats   // of drivers that have stopped
}

var errAskedForNet = errors.New("ModeNet was chosen")

// NewSystem returns a system. With ModeRing and ModePlain it fails where that mode cannot
// be used, and the error names the setting to change. With ModeAuto and ModeNet it does
// not fail. An unknown mode is an error.
func NewSystem(o Options) (*System, error) {
	s := &System{opts: o, mode: o.Mode}
	var err error
	switch o.Mode {
	case ModeAuto, ModeRing:
		s.mode = ModeRing
		err = ringsUsable()
	case ModePlain:
		err = errNoDriver
	case ModeNet:
		s.reason = errAskedForNet.Error()
	default:
		return nil, fmt.Errorf("unet: unknown mode %v: want auto, io_uring, plain or net", o.Mode)
	}
	switch {
	case err == nil:
	case o.Mode == ModeAuto && errNoDriver != nil:
		s.mode, s.reason = ModeNet, err.Error()
	case o.Mode == ModeAuto:
		s.mode, s.reason = ModePlain, err.Error()
	default:
		return nil, fmt.Errorf("unet: mode %v was chosen: %w", o.Mode, err)
	}
	if o.Logger != nil {
		name, reason := s.Backend()
		o.Logger.Info("unet: backend chosen", "backend", name, "reason", reason)
	}
	return s, nil
}

// lostRing logs that a driver continues with plain calls.
func (s *System) lostRing(err error) {
	logger := s.opts.Logger
	if logger == nil {
		logger = slog.Default()
	}
	go logger.Warn("unet: a ring failed; plain calls receive instead", "error", err) // the driver does not wait for a handler
}

// Stats counts the work of a [System] since it was created. ModeNet has no drivers and
// counts nothing.
type Stats struct {
	Passes   uint64 `json:"passes"`   // passes of drivers that found events
	Helped   uint64 `json:"helped"`   // passes made by calls, because computing goroutines kept the driver from running
	Events   uint64 `json:"events"`   // events of sockets
	Receives uint64 `json:"receives"` // receives by drivers for waiting readers
	Ring     uint64 `json:"ring"`     // receives through a ring
	Enters   uint64 `json:"enters"`   // calls of io_uring_enter
	Sleeps   uint64 `json:"sleeps"`   // times that a driver slept
	Open     int    `json:"open"`     // sockets open now
}

// Plus returns the sum of two sets of counters.
func (s Stats) Plus(t Stats) Stats {
	return Stats{
		Passes: s.Passes + t.Passes, Helped: s.Helped + t.Helped, Events: s.Events + t.Events,
		Receives: s.Receives + t.Receives, Ring: s.Ring + t.Ring, Enters: s.Enters + t.Enters,
		Sleeps: s.Sleeps + t.Sleeps, Open: s.Open + t.Open,
	}
}

// Stats returns the counters of the system. It may be called concurrently.
func (s *System) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := s.ended
	for _, l := range s.loops {
		sum = sum.Plus(l.stats())
	}
	sum.Open = s.users
	return sum
}

// Total returns the counters of the default system, which the package's own
// functions use.
func Total() Stats { return defaultSystem().Stats() }

// ringsUsable returns nil if rings can be used here, otherwise the reason.
func ringsUsable() error {
	if errNoDriver != nil {
		return errNoDriver
	}
	if err := features.HaveIOURing(); err != nil {
		return err
	}
	if err := features.HaveOp(uring.OpRecv); err != nil {
		return err
	}
	return features.HaveFeature(uring.FeatExtArg) // the module is tested with it only
}

// defaultSystem is the system of the package's functions. It starts nothing before
// the first socket.
var defaultSystem = sync.OnceValue(func() *System {
	s, _ := NewSystem(Options{})      // ModeAuto does not fail
	s.linger = 100 * time.Millisecond // less than detectors of leaked goroutines wait
	return s
})

// Backend returns what the default system uses; see [System.Backend].
func Backend() (name, reason string) { return defaultSystem().Backend() }

// Backend returns what the system uses: "io_uring", "plain" (drivers that receive by
// plain system calls) or "net" (connections of package net). reason is not empty if
// ModeAuto did not choose io_uring, and with ModeNet.
func (s *System) Backend() (name, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.mode {
	case ModeRing:
		return "io_uring", ""
	case ModePlain:
		return "plain", s.reason
	}
	return "net", s.reason
}

// or returns s, or the default system if s is nil.
func (s *System) or() *System {
	if s == nil {
		return defaultSystem()
	}
	return s
}

// Mode is how a [System] receives: ModeAuto, ModeRing, ModePlain or ModeNet.
type Mode = features.Mode

const (
	// ModeAuto uses rings where io_uring is available, otherwise plain system
	// calls. On systems other than Linux it uses package net.
	ModeAuto = features.ModeAuto
	// ModeRing uses rings. [NewSystem] fails where io_uring cannot be used.
	ModeRing = features.ModeRing
	// ModePlain works like ModeRing, with a plain system call in place of each ring
	// operation. It does not need io_uring, and saves nearly as much CPU time.
	ModePlain = features.ModePlain
	// ModeNet uses connections of package net.
	ModeNet = features.ModeNet
)
