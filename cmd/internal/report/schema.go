// SPDX-License-Identifier: MIT

package report

import (
	"encoding/json"
	"math"

	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// SchemaVersion is the version of result files that this package writes. Version 1 had no number,
// no notes and only one storage. Version 2 had no samples, and
// version 3 neither starts nor intervals. All can be read.
const SchemaVersion = 4

// Document is a result file.
type Document struct {
	// Schema is the version; 0 means 1.
	Schema  int      `json:"schema,omitempty"`
	Host    Host     `json:"host"`
	Results []Result `json:"results"`
	Ratios  []Ratio  `json:"ratios"`
	// Skipped are parts that were requested and could not be measured.
	Skipped []Skip `json:"skipped,omitempty"`
	// Notes are sentences that a reader of the results should know.
	Notes []string `json:"notes,omitempty"`
}

// Host describes the machine and the circumstances of a run.
type Host struct {
	Time       string `json:"time"`
	OS         string `json:"os"`
	Arch       string `json:"arch"`
	Kernel     string `json:"kernel,omitempty"`
	CPU        string `json:"cpu,omitempty"`
	Cores      int    `json:"cores"`
	GOMAXPROCS int    `json:"gomaxprocs"`
	Memory     int64  `json:"memory_bytes,omitempty"`
	// Device, Filesystem and Mount describe the measured directory or file.
	Device     string `json:"device,omitempty"`
	Filesystem string `json:"filesystem,omitempty"`
	Mount      string `json:"mount_options,omitempty"`
	FileBytes  int64  `json:"file_bytes,omitempty"`
	// Storages are further measured storages. Results on one of them have its name as the parameter
	// "storage".
	Storages []Storage `json:"storages,omitempty"`
	// Verified reports whether the content of reads was checked.
	Verified bool   `json:"verified"`
	Go       string `json:"go"`
	Ringside string `json:"ringside"`
	// Commit is the one from which the program was built, with "-dirty" if the tree had changes, as
	// package cli finds it.
	Commit string `json:"commit,omitempty"`
	// Backend is the mechanism that ringside chose, and Reason is the reason.
	Backend string `json:"backend,omitempty"`
	Reason  string `json:"backend_reason,omitempty"`
	// Peers are the foreign programs that were measured, with version and compiler.
	Peers []string `json:"peers,omitempty"`
	Seed  uint64   `json:"seed"`
	Pairs int      `json:"pairs"`
	// Looks is of files of older versions.
	Looks int `json:"looks,omitempty"`
	// Starts is how often the engines of a cell were started that took turns. 0 means that they were
	// measured in rounds, with Pairs rounds of each.
	Starts int `json:"starts,omitempty"`
	// DurationMs is the length of each measured window.
	DurationMs float64 `json:"duration_ms"`
	// Stolen is the share of the processors' time in which this virtual machine had work and its host
	// ran something else, in the rounds whose samples are kept. 0 can mean that it is unknown.
	Stolen float64 `json:"stolen,omitempty"`
}

// Storage is a place where files were measured.
type Storage struct {
	Name       string `json:"name"`
	Device     string `json:"device"`
	Filesystem string `json:"filesystem"`
	FileBytes  int64  `json:"file_bytes"`
}

// Params are a workload's parameters by name, such as block, goroutines, cache and device. Decoding
// turns whole numbers into int.
type Params map[string]any

// UnmarshalJSON implements json.Unmarshaler.
func (p *Params) UnmarshalJSON(b []byte) error {
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		return err
	}
	for name, v := range m {
		if f, ok := v.(float64); ok && f == math.Trunc(f) && math.Abs(f) <= 1<<53 {
			m[name] = int(f)
		}
	}
	*p = m
	return nil
}

// Result is the result of one engine in one cell.
type Result struct {
	Suite    string                     `json:"suite"`
	Workload string                     `json:"workload"`
	Params   Params                     `json:"params"`
	Engine   string                     `json:"engine"`
	Metrics  map[string]measure.Summary `json:"metrics"`
	// Samples are the values of each round, by metric. Values of one cell with the same index form
	// a pair.
	Samples map[string][]float64 `json:"samples,omitempty"`
	// Starts has the number of samples after each start of the engines. Without it each sample is of
	// a round with a start of its own.
	Starts []int `json:"starts,omitempty"`
}

// Ratio is one engine's metric divided by that of another engine, pair by pair.
type Ratio struct {
	Suite    string `json:"suite"`
	Workload string `json:"workload"`
	Params   Params `json:"params"`
	Engine   string `json:"engine"`
	Against  string `json:"against"`
	Metric   string `json:"metric"`
	// Ratio is the estimate, with its interval of 95 %.
	Ratio float64 `json:"ratio"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	// Median, Min and Max are of the pairs, in files of older versions.
	Median float64 `json:"median,omitempty"`
	Min    float64 `json:"min,omitempty"`
	Max    float64 `json:"max,omitempty"`
}

// Skip is a part that was not measured. An empty field means all of that kind.
type Skip struct {
	Suite    string `json:"suite"`
	Workload string `json:"workload,omitempty"`
	Params   Params `json:"params,omitempty"`
	Engine   string `json:"engine,omitempty"`
	Reason   string `json:"reason"`
}
