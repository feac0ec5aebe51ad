// SPDX-License-Identifier: MIT

package metrics

import (
	"slices"
	"strings"
	"unicode"
)

// Metrics returns a copy of the list of all metrics that sources may have, in the order of
// docs/metrics.md.
func Metrics() []Metric { return slices.Clone(table) }

// table describes each field of each Stats type. The tests compare it with the types
// and with docs/metrics.md.
var table = slices.Concat(
	of("ufile",
		count("Cached", "reads that the page cache served without blocking"),
		count("Plain", "reads and writes by plain system calls"),
		count("Ring", "reads and writes through a ring"),
		count("Fixed", "of these, those with registered memory"),
	),
	of("reactor",
		count("Submitted", "SQEs that the kernel took"),
		count("Completed", "CQEs reaped"),
		count("Events", "CQEs of streams that continued"),
		count("Enters", "system calls that submitted"),
		count("Retried", "operations submitted again because their thread exited or was interrupted"),
		count("Waits", "operations that waited because of Options.InFlight"),
		count("Overflows", "CQEs that overflowed a completion queue"),
		gauge("InFlight", "operations in flight"),
	),
	of("unet",
		count("Passes", "passes of drivers that found events"),
		count("Helped", "passes made by calls because the driver starved"),
		count("Events", "events of sockets"),
		count("Receives", "receives that drivers made for waiting readers"),
		count("Ring", "receives that went through a ring"),
		count("Enters", "calls of io_uring_enter"),
		count("Sleeps", "times that a driver slept"),
		gauge("Open", "open sockets"),
	),
	of("event",
		count("Accepted", "connections accepted"),
		count("Enrolled", "connections dialled or enrolled"),
		count("PacketsReceived", "datagrams received"),
		count("PacketsSent", "datagrams sent"),
		gauge("Open", "open connections"),
		count("AcceptRetries", "pauses of accepting for lack of descriptors or memory"),
		count("Enters", "calls of io_uring_enter"),
		count("Completed", "completions reaped"),
		count("Sleeps", "times that a loop slept"),
		count("Rearms", "receives started again"),
		count("Starved", "receives started again because buffers ran out"),
	),
	of("watch",
		count("Turns", "calls of Dispatch"),
		count("Events", "descriptors reported"),
		count("Enters", "calls of io_uring_enter or epoll_wait"),
		count("Moves", "rings opened because the goroutine changed threads"),
		gauge("Watched", "registered descriptors"),
	),
	of("appendlog",
		count("Records", "records appended"),
		count("Bytes", "bytes of records, without headers"),
		count("Groups", "groups written"),
		gauge("LargestGroup", "most appends served by one write"),
		count("Syncs", "syncs of a segment"),
		seconds(count("SyncTime", "time spent in syncs")),
		seconds(gauge("LongestSync", "longest sync")),
		count("Rotations", "segments sealed"),
		gauge("Waiting", "appends that wait for a group"),
	),
	of("sqlitevfs",
		count("Syncs", "syncs of files that SQLite asked for"),
		count("SharedSyncs", "syncs shared with other databases by a syncfs"),
		count("Logged", "syncs served by the log of the databases"),
		count("SyncFS", "calls of syncfs"),
		count("DirSyncs", "syncs of directories"),
		count("Misses", "page reads that waited for the disk"),
		count("Scans", "scans recognised, whose leaves were fetched"),
		count("Fetched", "pages fetched ahead"),
		count("Hits", "fetched pages that were cached when read"),
		count("Late", "fetched pages still being read"),
		count("Waste", "fetched pages not read"),
	),
	of("backup",
		gauge("Databases", "databases that were open since the start"),
		gauge("Behind", "of these, those with commits that the target lacks"),
		seconds(gauge("Lag", "age of the oldest commit that the target lacks")),
		seconds(gauge("LongestLag", "longest time from a commit to its object")),
		count("Objects", "objects stored"),
		count("Bytes", "bytes stored"),
		count("Requests", "requests to the target"),
		count("Failures", "failed requests, which were repeated"),
		gauge("Memory", "bytes of commits that wait for the target"),
	),
	of("replica",
		count("Commits", "transactions of connections of this node"),
		count("Applied", "transactions of other nodes, written into files"),
		count("Entries", "raft entries that this node proposed; each holds the commits that waited"),
		count("Verified", "checks with a majority for linearizable reads"),
		count("Forwarded", "statements that this node ran for other nodes"),
		count("Broken", "databases whose files differed or failed"),
		count("Redone", "databases repaired from raft's log"),
		count("Fetched", "databases fetched from another node"),
		count("Uncertain", "operations, such as commits, whose outcome their callers do not know"),
		gauge("Databases", "databases of the cluster"),
		gauge("Unserved", "databases that this node does not serve until they are complete"),
	),
)

var (
	byField = map[string]*Metric{}
	known   = map[string]bool{}
)

func init() {
	for i := range table {
		m := &table[i]
		byField[m.Package+"."+m.Field], known[m.Package] = m, true
	}
}

func count(field, help string) Metric { return Metric{Field: field, Kind: Counter, Help: help} }
func gauge(field, help string) Metric { return Metric{Field: field, Kind: Gauge, Help: help} }

func seconds(m Metric) Metric {
	m.Seconds = true
	return m
}

// of sets the package and the names of metrics.
func of(pkg string, ms ...Metric) []Metric {
	for i := range ms {
		m := &ms[i]
		m.Package = pkg
		m.Name = "ringside_" + pkg + "_" + snake(strings.TrimSuffix(m.Field, "Time"))
		if m.Seconds {
			m.Name += "_seconds"
		}
		if m.Kind == Counter {
			m.Name += "_total"
		}
	}
	return ms
}

// snake converts a field's name to snake case: FixedFiles to fixed_files, SyncFS to sync_fs.
func snake(s string) string {
	var b strings.Builder
	for i, r := range s {
		if unicode.IsUpper(r) && i > 0 && !unicode.IsUpper(rune(s[i-1])) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
