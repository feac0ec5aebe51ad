// SPDX-License-Identifier: MIT

package report

import (
	"cmp"
	"slices"
)

// layouts are those of the suites.
var layouts = map[string]Layout{
	"file": FileLayout, "net": NetLayout, "ring": RingLayout, "sqlite": SQLiteLayout, "watch": WatchLayout,
}

// LayoutOf returns how the cells of a suite are arranged.
func LayoutOf(suite string) Layout { return layouts[suite] }

// Suites names the suites of the run, in the order of its cells.
func (r *Run) Suites() []string {
	var out []string
	for _, c := range r.Cells {
		if !slices.Contains(out, c.Suite) {
			out = append(out, c.Suite)
		}
	}
	return out
}

// Suite returns the part of the run that belongs to one suite.
func (r *Run) Suite(name string) *Run {
	part := &Run{Host: r.Host}
	for _, c := range r.Cells {
		if c.Suite == name {
			part.Cells = append(part.Cells, c)
		}
	}
	for _, s := range r.Skipped {
		if s.Suite == name {
			part.Skipped = append(part.Skipped, s)
		}
	}
	return part
}

// Add appends what another suite measured on the same machine. What the run knows of its
// circumstances stays, what it does not know is taken over.
func (r *Run) Add(other *Run) {
	r.Cells = append(r.Cells, other.Cells...)
	r.Skipped = append(r.Skipped, other.Skipped...)
	for _, n := range other.Notes {
		if !slices.Contains(r.Notes, n) {
			r.Notes = append(r.Notes, n)
		}
	}
	if r.Host.Time == "" {
		r.Host = other.Host
		return
	}
	h, o := &r.Host, other.Host
	h.Device, h.Filesystem, h.Mount = cmp.Or(h.Device, o.Device), cmp.Or(h.Filesystem, o.Filesystem), cmp.Or(h.Mount, o.Mount)
	switch {
	case h.FileBytes == 0 && o.FileBytes > 0:
		h.Verified = o.Verified
	case h.FileBytes == 0 || o.FileBytes > 0:
		h.Verified = h.Verified && o.Verified
	}
	h.FileBytes = cmp.Or(h.FileBytes, o.FileBytes)
	h.Storages = append(h.Storages, o.Storages...)
	if h.Backend == "" {
		h.Backend, h.Reason = o.Backend, o.Reason
	}
	for _, p := range o.Peers {
		if !slices.Contains(h.Peers, p) {
			h.Peers = append(h.Peers, p)
		}
	}
	h.Seed, h.DurationMs = cmp.Or(h.Seed, o.Seed), cmp.Or(h.DurationMs, o.DurationMs)
}
