// SPDX-License-Identifier: MIT

package soak

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/internal/testing/stress"
	"github.com/ringside-io/ringside/reactor"
	"github.com/ringside-io/ringside/unet"
	"github.com/ringside-io/ringside/watch"
)

// size is the size of scenarios. They are short and run several at a time, so that a failing one is
// soon repeated. Each worker may need about twelve descriptors.
var size = stress.Size{Workers: 40, Steps: 20}

// environmentsOfRow returns the number of concurrent scenarios of a row: four per processor,
// limited by descriptors and disk space.
func environmentsOfRow() int {
	const most, descriptors = 32, 1000
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 1
	}
	rows := uint64(4) // and as many for the other rows
	return int(max(min(most, uint64(4*runtime.GOMAXPROCS(0)), l.Cur/descriptors/rows), 1))
}

// findRings determines whether all packages can have rings.
func (s *soaker) findRings() {
	for _, try := range []func() error{
		func() error {
			r, err := reactor.New(reactor.Options{Loops: 1})
			if err == nil {
				err = r.Close()
			}
			return err
		},
		func() error {
			l, err := watch.NewLoop(watch.Options{Mode: watch.ModeRing})
			if err == nil {
				err = l.Close()
			}
			return err
		},
		func() error { _, err := unet.NewSystem(unet.Options{Mode: unet.ModeRing}); return err },
	} {
		if s.noRings = try(); s.noRings != nil {
			s.uses = append(s.uses, fmt.Sprintf("fallbacks, without io_uring: %v", s.noRings))
			return
		}
	}
	s.uses = append(s.uses, "io_uring, and the fallbacks: plain calls, epoll")
}

// scenarios runs one scenario after another.
func (r *round) scenarios(row string, seed func() uint64) {
	for r.more.Err() == nil {
		r.scenario(row, seed())
	}
}

// scenario runs one scenario.
func (r *round) scenario(row string, seed uint64) {
	dir := r.path("%s-%d", row, seed)
	if err := os.Mkdir(dir, 0o700); err != nil {
		r.problem(row, "%v", err)
		return
	}
	defer os.RemoveAll(dir)
	again := fmt.Sprintf("run it again: ringside soak --rows %s --replay %d", row, seed)
	s := stress.Generate("kernel", seed, size, func(rng *rand.Rand) stress.Settings { return r.settings(row, dir, rng) })
	w, err := stress.NewKernelEnv(s, dir)
	if err != nil {
		r.problem(row, "scenario %d: %v\n%s", seed, err, again)
		return
	}
	r.environments.Store(w, nil)
	defer r.environments.Delete(w)
	// A scenario is run to its end, unless the run ends early.
	report := stress.RunContext(r.cut, w, s)
	r.done(row, int(report.Operations))
	if report.Failed() {
		r.problem(row, "scenario %d: %s\n%s\n%s", seed, strings.Join(report.Problems, "\n"), report.Hung, again)
	}
}

// longestName is the maximum length of the path of a Unix socket.
const longestName = 107

// settings draws the settings of a scenario.
func (r *round) settings(row, dir string, rng *rand.Rand) stress.Settings {
	set := stress.KernelSettings(rng)
	if len(dir)+len("/socket") > longestName {
		set["tcp"] = 1
	}
	set[stress.Beside] = 1
	if r.noRings != nil {
		set[stress.NoRings] = 1
	}
	set.Only(row)
	return set
}

// environmentsInFlight returns how many operations the scenarios have in flight.
func (s *soaker) environmentsInFlight() (n int64) {
	s.environments.Range(func(w, _ any) bool {
		n += int64(w.(*stress.KernelEnv).InFlight())
		return true
	})
	return n
}
