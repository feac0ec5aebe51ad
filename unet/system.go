// SPDX-License-Identifier: MIT

package unet

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/uring"
)

// Options configure a [System]; the zero value chooses automatically.
type Options struct {
	Mode Mode
	// Loops is the number of drivers that the sockets are spread over; 0 means
	// one for each four processors (GOMAXPROCS), at least one.
	Loops int
	// Spin bounds how long a driver looks for more work before it sleeps, when
	// there was little before; 0 means 100 µs, a negative value never to spin.
	// Looking in vain makes the next attempts rarer. An idle driver sleeps.
	Spin time.Duration
	// Restrict limits the rings to RECV, which is all that this package does
	// with them. Anything else that gets hold of them is refused with EACCES.
	Restrict bool
}

// spin returns the bound in effect.
func (o *Options) spin() time.Duration {
	switch {
	case o.Spin == 0:
		return 100 * time.Microsecond
	case o.Spin < 0:
		return 0
	}
	return o.Spin
}

// System is a set of drivers that sockets share. They are started for the first
// socket and stopped, with everything they hold freed, when the last one is
// closed. All methods may be called concurrently.
type System struct {
	opts   Options
	mode   Mode // after the choice; never ModeAuto
	reason string

	mu    sync.Mutex
	users int
	loops []*loop
	next  int
	pipes []*pipe // empty, for copies between sockets
}

var errAskedForNet = errors.New("package net's connections were asked for")

// NewSystem returns a system. With ModeRing and ModePlain it fails where they
// cannot be had, with an error that says what to change; the other modes do not
// fail.
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
		err = fmt.Errorf("unet: %v: no such mode", o.Mode)
	}
	switch {
	case err == nil:
	case o.Mode == ModeAuto && errNoDriver != nil:
		s.mode, s.reason = ModeNet, err.Error()
	case o.Mode == ModeAuto:
		s.mode, s.reason = ModePlain, err.Error()
	default:
		return nil, fmt.Errorf("unet: mode %v was asked for: %w", o.Mode, err)
	}
	return s, nil
}

// ringsUsable returns nil where rings can be used, and otherwise why not.
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
	return features.HaveFeature(uring.FeatExtArg) // what the module is tested with
}

// defaultSystem serves the package's own functions. It starts nothing until a
// socket needs it.
var defaultSystem = sync.OnceValue(func() *System {
	s, _ := NewSystem(Options{}) // ModeAuto does not fail
	return s
})

// Backend returns what the package's own functions use: "io_uring", or "plain" or
// "net" with the reason why not io_uring.
func Backend() (name, reason string) { return defaultSystem().Backend() }

// Backend returns what the system uses: "io_uring"; "plain", for plain system
// calls in the same design; or "net", for package net's connections. The reason
// is empty when that was asked for by its mode and for "io_uring".
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

// or returns the system itself, or the default one for nil.
func (s *System) or() *System {
	if s == nil {
		return defaultSystem()
	}
	return s
}

// Mode is how a [System] moves data.
type Mode int

const (
	// ModeAuto takes rings where io_uring can be used, plain calls where it
	// cannot, and package net's own connections on other systems than Linux.
	ModeAuto Mode = iota
	// ModeRing insists on rings.
	ModeRing
	// ModePlain is the design of ModeRing with a plain system call in the
	// place of each operation of a ring. It needs no io_uring, and has nearly
	// all of the gain.
	ModePlain
	// ModeNet hands out package net's own connections.
	ModeNet
)

// String returns auto, ring, plain or net.
func (m Mode) String() string {
	switch m {
	case ModeAuto:
		return "auto"
	case ModeRing:
		return "ring"
	case ModePlain:
		return "plain"
	case ModeNet:
		return "net"
	}
	return fmt.Sprintf("Mode(%d)", int(m))
}
