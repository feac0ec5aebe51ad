// SPDX-License-Identifier: MIT

// Package prom exports a [metrics.Set] to Prometheus.
package prom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringside-io/ringside/metrics"
)

// Collector returns a collector to register with a registry of Prometheus. Each scrape reads
// the sources, including sources that were added to the set after Collector returned. Each
// sample has the label source. The metric ringside_backend_info is 1 and has the labels
// package, source, backend and reason.
func Collector(s *metrics.Set) prometheus.Collector {
	c := &collector{set: s, descs: map[string]*prometheus.Desc{}}
	for _, m := range metrics.Metrics() {
		c.descs[m.Name] = prometheus.NewDesc(m.Name, m.Help, []string{"source"}, nil)
	}
	c.backend = prometheus.NewDesc("ringside_backend_info", "backend in use, and why", []string{"package", "source", "backend", "reason"}, nil)
	return c
}

type collector struct {
	set     *metrics.Set
	descs   map[string]*prometheus.Desc
	backend *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		to <- d
	}
	to <- c.backend
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	for _, s := range c.set.Samples() {
		kind := prometheus.GaugeValue
		if s.Kind == metrics.Counter {
			kind = prometheus.CounterValue
		}
		to <- prometheus.MustNewConstMetric(c.descs[s.Name], kind, s.Value, s.Source)
	}
	for _, b := range c.set.Backends() {
		to <- prometheus.MustNewConstMetric(c.backend, prometheus.GaugeValue, 1, b.Package, b.Source, b.Name, b.Reason)
	}
}
