// SPDX-License-Identifier: MIT

package suite

import (
	"cmp"
	"slices"

	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/cmd/internal/workload"
	"github.com/ringside-io/ringside/watch"
)

// WatchOptions are the options of the suite "watch". The zero value is the default run.
type WatchOptions struct {
	// Workloads are the workloads to measure: [EventsWork], the default, and [HTTPWork].
	Workloads []string
	// Requests is the number of requests to the web server in a round (0: 100,000). Connections is
	// the number of concurrent connections (0: 10).
	Requests, Connections int
	// Engines and Sources replace the lists of engines and of sources of events.
	Engines []string
	Sources []string
	// Modes, Active and Idle replace the measured points if at least one of them is set. The points
	// are then the grid of all three. Unset ones are edge, 100 and 0.
	Modes  []string
	Active []int
	Idle   []int
	Timing
}

var (
	// watchEngines are the backends of package watch. The first is the baseline.
	watchEngines = []string{watch.ModeEpoll.String(), watch.ModeRing.String()}
	watchWorks   = []string{EventsWork, HTTPWork}
	watchSources = []string{workload.SourceEventFD, workload.SourcePair, workload.SourceWake}
	watchModes   = []watch.Trigger{watch.Edge, watch.Level, watch.OneShot}
)

// These are the bounds of the options. Fewer requests give no meaningful percentiles, and each
// connection needs at least one request.
const (
	maxWatched  = 1_000_000 // of --active and --idle
	minRequests = 100
	maxRequests = 10_000_000
	maxAsking   = 100
)

// Validate returns an error that names the first option that is not valid.
func (o WatchOptions) Validate() error {
	words := WatchWords()
	if err := cmp.Or(words.check("workload", o.Workloads), words.check("engine", o.Engines),
		words.check("source", o.Sources), words.check("mode", o.Modes)); err != nil {
		return err
	}
	var requests []int
	if o.Requests != 0 {
		requests = []int{o.Requests}
	}
	return cmp.Or(between("active", o.Active, 1, maxWatched, 1), between("idle", o.Idle, 0, maxWatched, 1),
		between("requests", requests, minRequests, maxRequests, 1), between("connections", []int{o.Connections}, 0, maxAsking, 1), o.validate())
}

func modeNames() []string {
	var names []string
	for _, m := range watchModes {
		names = append(names, m.String())
	}
	return names
}

// withDefaults sets the options that are zero.
func (o WatchOptions) withDefaults() WatchOptions {
	o.setDefaults()
	if o.Requests == 0 {
		o.Requests = 100_000
	}
	if o.Connections == 0 {
		o.Connections = 10
	}
	if len(o.Workloads) == 0 {
		o.Workloads = []string{EventsWork}
	}
	if len(o.Engines) == 0 {
		o.Engines = watchEngines
	}
	if len(o.Sources) == 0 {
		o.Sources = watchSources
	}
	return o
}

// cells returns the grid, source by source.
func (o WatchOptions) cells() []workload.Watch {
	var out []workload.Watch
	for _, source := range o.Sources {
		for _, w := range o.points(source) {
			w.Source = source
			out = append(out, w)
		}
	}
	return out
}

// points returns the points of one source. A wake has no parameters.
func (o WatchOptions) points(source string) []workload.Watch {
	switch {
	case source == workload.SourceWake:
		return []workload.Watch{{}}
	case len(o.Modes)+len(o.Active)+len(o.Idle) > 0:
		return o.grid()
	case source == workload.SourcePair:
		return []workload.Watch{{Mode: watch.Edge, Active: 100}}
	}
	return []workload.Watch{
		{Mode: watch.Edge, Active: 1},
		{Mode: watch.Edge, Active: 10},
		{Mode: watch.Edge, Active: 100},
		{Mode: watch.Edge, Active: 100, Idle: 10_000},
		{Mode: watch.Edge, Active: 1000},
		{Mode: watch.Level, Active: 100},
		{Mode: watch.OneShot, Active: 100},
	}
}

func (o WatchOptions) grid() []workload.Watch {
	var out []workload.Watch
	for _, mode := range orThese(o.Modes, watch.Edge.String()) {
		for _, active := range orThese(o.Active, 100) {
			for _, idle := range orThese(o.Idle, 0) {
				m := watchModes[slices.Index(modeNames(), mode)]
				out = append(out, workload.Watch{Mode: m, Active: active, Idle: idle})
			}
		}
	}
	return out
}

// watchParams returns the parameters of a cell in result files.
func watchParams(w workload.Watch) report.Params {
	p := report.Params{"source": w.Source}
	if w.Source == workload.SourceWake {
		return p
	}
	p["mode"], p["active"] = w.Mode.String(), w.Active
	if w.Idle > 0 {
		p["idle"] = w.Idle
	}
	return p
}
