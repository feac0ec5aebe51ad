// SPDX-License-Identifier: MIT

// Package metrics exports the counters of ringside's packages: for expvar
// ([Set.Publish]), for Prometheus (package prom) and for OpenTelemetry (package
// otelmetric).
//
// A [Set] has sources. A source is a System, Server, Watcher, Loop, Log, Reactor, Backup or Node, or a
// function that returns counters. Each source has a name, which becomes the label "source".
// docs/metrics.md lists all metrics, their meaning and the alerts to set.
//
//	set := metrics.NewSet()
//	metrics.Add(set, "http", server) // an event.Server
//	metrics.AddFunc(set, "default", ufile.Total)
//	prometheus.MustRegister(prom.Collector(set))
//
// Reading the counters of a source takes a few atomic loads, and a mutex that no operation
// of the source holds for long; those of a Backup, two mutexes for each of its databases. All
// functions and methods may be called concurrently.
package metrics

import (
	"cmp"
	"expvar"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ringside-io/ringside/ufile"
	"github.com/ringside-io/ringside/unet"
)

// Kind is the kind of a metric.
type Kind int

const (
	// Counter is a value that never falls while its source is open.
	Counter Kind = iota
	// Gauge is a current value, or the largest value so far.
	Gauge
)

// Metric describes one field of a Stats type.
type Metric struct {
	Package string // of the Stats type, such as "ufile"
	Field   string // of the Stats type, such as "Cached"
	Name    string // in Prometheus, such as "ringside_ufile_cached_total"
	Kind    Kind
	Seconds bool   // the unit is seconds; otherwise the value is a count
	Help    string // describes the metric in a few words
}

// Sample is the value of one metric of one source.
type Sample struct {
	*Metric         // shared by all samples: it must not be changed
	Source  string  // the name of the source
	Value   float64 // in seconds if Metric.Seconds is set
}

// Backend is the backend that a source uses. Name is the backend, Reason the reason for the
// choice.
type Backend struct {
	Package, Source, Name, Reason string
}

// Set is a set of sources. [NewSet] creates one; the zero value is not usable.
type Set struct {
	mu      sync.Mutex
	sources map[key]source
}

type key struct{ pkg, name string }

type source struct {
	stats   func() reflect.Value
	backend func() (name, reason string) // may be nil
}

// NewSet returns an empty set.
func NewSet() *Set { return &Set{sources: map[key]source{}} }

// Add adds a source under a name. It replaces a source of the same package and name. Bytes of
// the name that are not UTF-8 become U+FFFD. The
// set keeps the source reachable until [Set.Remove]: remove a source when you close it. Add
// panics if T is not a Stats type of ringside.
func Add[T any](s *Set, name string, from interface{ Stats() T }) {
	add(s, name, from.Stats, from)
}

// AddFunc adds a function that returns counters, such as ufile.Total or sqlitevfs.Total, as
// [Add] adds a source. The function is called for each reading and must be safe for
// concurrent use. The default systems of ufile and unet have a backend, as the sources of
// [Add] that have a method Backend.
func AddFunc[T any](s *Set, name string, stats func() T) {
	add(s, name, stats, defaults[reflect.ValueOf(stats).Pointer()])
}

// backend is the method Backend of a source.
type backend func() (name, reason string)

func (b backend) Backend() (name, reason string) { return b() }

// defaults has the backends of the default systems by the function that returns their
// counters.
var defaults = map[uintptr]interface{ Backend() (name, reason string) }{
	reflect.ValueOf(ufile.Total).Pointer(): backend(ufile.Backend),
	reflect.ValueOf(unet.Total).Pointer():  backend(unet.Backend),
}

// add registers a source. It panics if T is no Stats type, which is a mistake of the program.
func add[T any](s *Set, name string, stats func() T, from any) {
	t := reflect.TypeFor[T]()
	if t.Kind() != reflect.Struct || !known[path.Base(t.PkgPath())] {
		panic(fmt.Sprintf("metrics: %v is not a Stats type of ringside", t))
	}
	src := source{stats: func() reflect.Value { return reflect.ValueOf(stats()) }}
	if b, ok := from.(interface{ Backend() (name, reason string) }); ok {
		src.backend = b.Backend
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sources[key{path.Base(t.PkgPath()), valid(name)}] = src
}

// Remove removes the sources with this name, of all packages.
func (s *Set) Remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.sources, func(k key, _ source) bool { return k.name == valid(name) })
}

// valid returns text without the bytes that Prometheus and OpenTelemetry refuse.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// list returns the sources in the order of their packages and names.
func (s *Set) list() ([]key, map[key]source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := maps.Clone(s.sources)
	return slices.SortedFunc(maps.Keys(all), func(a, b key) int {
		return cmp.Or(strings.Compare(a.pkg, b.pkg), strings.Compare(a.name, b.name))
	}), all
}

// Samples reads all sources and returns the values of their metrics, ordered by package and
// name of the source. If the Stats of a source contain those of a reactor, the reactor's
// counters are samples of package reactor. The samples of such a source and of a reactor of the
// same name are added up.
func (s *Set) Samples() []Sample {
	keys, all := s.list()
	var out []Sample
	for _, k := range keys {
		out = appendSamples(out, k.name, all[k].stats())
	}
	return addedUp(out)
}

// addedUp returns one sample for each metric and name: Prometheus refuses a scrape with two.
func addedUp(all []Sample) []Sample {
	type series struct {
		metric *Metric
		source string
	}
	places := make(map[series]int, len(all))
	out := all[:0]
	for _, s := range all {
		if i, twice := places[series{s.Metric, s.Source}]; twice {
			out[i].Value += s.Value
			continue
		}
		places[series{s.Metric, s.Source}] = len(out)
		out = append(out, s)
	}
	return out
}

// appendSamples appends the numbers of a Stats value and of those in it.
func appendSamples(out []Sample, name string, v reflect.Value) []Sample {
	pkg := path.Base(v.Type().PkgPath())
	for i := range v.NumField() {
		f := v.Field(i)
		if f.Kind() == reflect.Struct {
			out = appendSamples(out, name, f)
			continue
		}
		m := byField[pkg+"."+v.Type().Field(i).Name]
		if m == nil {
			continue // text, such as the path of a database
		}
		out = append(out, Sample{m, name, value(f)})
	}
	return out
}

func value(f reflect.Value) float64 {
	switch {
	case f.Type() == reflect.TypeFor[time.Duration]():
		return time.Duration(f.Int()).Seconds()
	case f.CanUint():
		return float64(f.Uint())
	}
	return float64(f.Int())
}

// Backends returns the backends of the sources that have one, ordered by package
// and name.
func (s *Set) Backends() []Backend {
	keys, all := s.list()
	var out []Backend
	for _, k := range keys {
		if f := all[k].backend; f != nil {
			name, reason := f()
			out = append(out, Backend{k.pkg, k.name, name, valid(reason)})
		}
	}
	return out
}

// Publish publishes the set as an expvar: a map from packages to sources, each with the
// counters and the backend. Like expvar.Publish it panics if the name is in use.
func (s *Set) Publish(name string) { expvar.Publish(name, expvar.Func(s.tree)) }

func (s *Set) tree() any {
	type node struct {
		Stats   any    `json:"stats"`
		Backend string `json:"backend,omitempty"`
		Reason  string `json:"reason,omitempty"`
	}
	keys, all := s.list()
	tree := map[string]map[string]node{}
	for _, k := range keys {
		n := node{Stats: all[k].stats().Interface()}
		if f := all[k].backend; f != nil {
			n.Backend, n.Reason = f()
		}
		if tree[k.pkg] == nil {
			tree[k.pkg] = map[string]node{}
		}
		tree[k.pkg][k.name] = n
	}
	return tree
}
