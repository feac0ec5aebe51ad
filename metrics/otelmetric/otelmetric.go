// SPDX-License-Identifier: MIT

// Package otelmetric exports a [metrics.Set] to OpenTelemetry.
package otelmetric

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/ringside-io/ringside/metrics"
)

// Register registers the metrics as observable instruments of a meter. The name of an
// instrument is the Prometheus name with dots between the parts and without the suffixes for
// units and kinds: ringside.ufile.cached. Times have the unit s, counts have none. The sources are read when the meter's provider
// collects, including sources that were added to the set after Register returned. Each value
// has the attribute source. The instrument ringside.backend is 1 and has the attributes
// package, source, backend and reason. The method Unregister of the result ends the
// collection. An error is the meter's.
func Register(meter metric.Meter, s *metrics.Set) (metric.Registration, error) {
	r := &reader{set: s, instruments: map[string]metric.Float64Observable{}}
	var all []metric.Observable
	for _, m := range metrics.Metrics() {
		o, err := instrument(meter, &m)
		if err != nil {
			return nil, err
		}
		r.instruments[m.Name] = o
		all = append(all, o)
	}
	var err error
	if r.backend, err = meter.Float64ObservableGauge("ringside.backend", metric.WithDescription("backend in use, and why")); err != nil {
		return nil, err
	}
	return meter.RegisterCallback(r.observe, append(all, r.backend)...)
}

func instrument(meter metric.Meter, m *metrics.Metric) (metric.Float64Observable, error) {
	unit := "" // 1 is for ratios: exporters would append _ratio to the names of gauges
	if m.Seconds {
		unit = "s"
	}
	if m.Kind == metrics.Gauge {
		return meter.Float64ObservableGauge(name(m), metric.WithDescription(m.Help), metric.WithUnit(unit))
	}
	return meter.Float64ObservableCounter(name(m), metric.WithDescription(m.Help), metric.WithUnit(unit))
}

// name returns the name of the instrument. It has no suffixes for units and kinds, because
// exporters add them.
func name(m *metrics.Metric) string {
	n := strings.TrimSuffix(strings.TrimSuffix(m.Name, "_total"), "_seconds")
	prefix := "ringside_" + m.Package + "_"
	return "ringside." + m.Package + "." + strings.TrimPrefix(n, prefix)
}

type reader struct {
	set         *metrics.Set
	instruments map[string]metric.Float64Observable
	backend     metric.Float64Observable
}

func (r *reader) observe(_ context.Context, to metric.Observer) error {
	for _, s := range r.set.Samples() {
		to.ObserveFloat64(r.instruments[s.Name], s.Value, metric.WithAttributes(attribute.String("source", s.Source)))
	}
	for _, b := range r.set.Backends() {
		to.ObserveFloat64(r.backend, 1, metric.WithAttributes(
			attribute.String("package", b.Package), attribute.String("source", b.Source),
			attribute.String("backend", b.Name), attribute.String("reason", b.Reason)))
	}
	return nil
}
