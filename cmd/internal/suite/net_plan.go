// SPDX-License-Identifier: MIT

package suite

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/echo"
	"github.com/ringside-io/ringside/cmd/internal/peers/clone"
	"github.com/ringside-io/ringside/cmd/internal/peers/liburing"
)

// NetOptions are the options of the suite "net". The zero value is the default run.
type NetOptions struct {
	// Workloads are the workloads to measure. The default is echo, or all workloads with Full.
	Workloads []string
	// Connections, Sizes, Procs and Clients replace an axis of the grid, Engines the list of engines.
	Connections []int
	Sizes       []int
	Procs       []int
	Clients     []string
	// Bodies are the lengths of the bodies of requests.
	Bodies  []int
	Engines []string
	// Full measures the whole grid: more numbers of connections, up to 10,000, and servers with one P.
	// Brief measures the cells of the default run of all suites.
	Full, Brief bool
	// Clones maps the flags of foreign engines to directories with their sources, see package
	// clone. Pin keeps the server on one processor and the load generator off it.
	Clones map[string]string
	Pin    bool
	Timing
	// IdleFor is the length of a window without load (0: 10 s).
	IdleFor time.Duration
}

// netEngines are all engines except those that serve only datagrams. The first is the baseline.
var netEngines = []string{
	echo.NameStd, echo.NameConn, echo.NamePlain, echo.NameEvent, echo.NameEpoll, echo.NameBlocking,
	liburing.Name, clone.Gnet, clone.GnetOne, clone.Monoio,
}

// netKnown are all engines.
var netKnown = slices.Concat(netEngines, batchEngines)

const (
	maxConnections = 20_000
	maxMessage     = 1 << 20
)

// Validate returns an error that names the first option that is not valid.
func (o NetOptions) Validate() error {
	words := NetWords()
	if err := cmp.Or(between("connections", o.Connections, 1, maxConnections, 1), between("size", o.Sizes, 1, maxMessage, 1), between("body", o.Bodies, 1, maxMessage, 1),
		between("procs", o.Procs, 0, 1024, 1), words.check("workload", o.Workloads), words.check("engine", o.Engines), words.check("client", o.Clients)); err != nil {
		return err
	}
	if o.IdleFor < 0 {
		return fmt.Errorf("--idle-for %v: must not be negative", o.IdleFor)
	}
	if err := o.validate(); err != nil {
		return err
	}
	web := []string{nameHTTP, nameFastHTTP}
	if len(o.Clients)+len(o.Bodies) > 0 && !slices.ContainsFunc(web, o.chosen) {
		return errors.New("--client and --body: only for web servers: choose --workload http or fasthttp")
	}
	if len(o.wanted()) == 0 {
		return fmt.Errorf("--engine %s: not for the chosen workloads: choose another engine, or other workloads with --workload", strings.Join(o.Engines, ","))
	}
	return o.validateLoads()
}

// validateLoads returns an error if the load generator would refuse the load of a cell in the middle of a run.
func (o NetOptions) validateLoads() error {
	n := &netRun{opts: o.withDefaults(), spins: 1}
	for _, c := range o.cells() {
		w := netWorkloadOf(c.workload)
		if w.round != nil {
			continue
		}
		setup, job := w.parts(n, c, echo.NameStd)
		job.Network, job.Turning = setup.Network, true // it has no window yet
		if err := job.Check(); err != nil {
			return fmt.Errorf("--workload %s --size %d: %w", c.workload, c.size, err)
		}
	}
	return nil
}

func netWorkloadNames() []string {
	var names []string
	for _, w := range netWorkloads {
		names = append(names, w.name)
	}
	return names
}

// withDefaults sets the options that are zero.
func (o NetOptions) withDefaults() NetOptions {
	o.setDefaults()
	if o.IdleFor == 0 {
		o.IdleFor = 10 * time.Second
	}
	return o
}

// chosen reports whether the options select the workload.
func (o NetOptions) chosen(workload string) bool {
	if len(o.Workloads) > 0 {
		return slices.Contains(o.Workloads, workload)
	}
	return workload == nameEcho || o.Full
}

// wanted returns the engines of all cells, in order.
func (o NetOptions) wanted() []string {
	cells := o.cells()
	return slices.DeleteFunc(o.inOrder(netKnown), func(e string) bool {
		return !slices.ContainsFunc(cells, func(c netCell) bool { return slices.Contains(o.enginesOf(c), e) })
	})
}

// inOrder returns the engines that the user gave, in the user's order, or all.
func (o NetOptions) inOrder(all []string) []string {
	if len(o.Engines) > 0 {
		return slices.Clone(o.Engines)
	}
	return slices.Clone(all)
}

// enginesOf returns the engines for a cell. Most engines are measured only with echoes of small
// messages unless the user names them: other cells would take time and show nothing new.
func (o NetOptions) enginesOf(c netCell) []string {
	w := netWorkloadOf(c.workload)
	own := w.own
	switch {
	case c.workload != nameEcho:
	case c.procs == 1:
		own = usualEngines
	case c.size != smallMessage && len(o.Sizes) == 0:
		own = append(slices.Clone(usualEngines), liburing.Name)
	case o.Full:
		own = w.all
	default:
		own = slices.DeleteFunc(slices.Clone(w.all), func(e string) bool { return e == echo.NameEpoll })
	}
	return slices.DeleteFunc(o.inOrder(own), func(e string) bool {
		// A foreign engine needs its sources unless it is named. The blocking engine is left out by
		// default to save time.
		return !slices.Contains(w.all, e) || e == echo.NameBlocking && len(o.Engines) == 0 || clone.Is(e) && len(o.Engines) == 0 && o.Clones[clone.Flag(e)] == ""
	})
}

// cells returns the grid.
func (o NetOptions) cells() []netCell {
	var out []netCell
	for _, w := range netWorkloads {
		if o.chosen(w.name) {
			out = append(out, w.cells(o)...)
		}
	}
	return out
}
