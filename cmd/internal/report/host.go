// SPDX-License-Identifier: MIT

package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// joinAnd joins words with commas and "and".
func joinAnd(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

// maxStolen is the share of stolen time from which on results are affected.
const maxStolen = 0.02

// Fact is one circumstance of a run.
type Fact struct{ Name, Value string }

// Facts returns the known circumstances of the run.
func (h Host) Facts() []Fact {
	var out []Fact
	add := func(name string, parts ...string) {
		parts = slices.DeleteFunc(slices.Clone(parts), func(p string) bool { return p == "" })
		if len(parts) > 0 {
			out = append(out, Fact{name, strings.Join(parts, ", ")})
		}
	}
	memory, commit := "", ""
	if h.Memory > 0 {
		memory = fmt.Sprintf("%.1f GiB memory", float64(h.Memory)/(1<<30))
	}
	if h.Commit != "" {
		commit = "commit " + h.Commit
	}
	add("kernel", h.OS+"/"+h.Arch, h.Kernel)
	add("cpu", h.CPU, fmt.Sprintf("%d cores", h.Cores), fmt.Sprintf("GOMAXPROCS %d", h.GOMAXPROCS), memory)
	add("storage", h.Device, h.Filesystem, h.Mount)
	if h.FileBytes > 0 {
		verified := "content not verified, as this run did not make it"
		if h.Verified {
			verified = "content of reads verified"
		}
		add("file", mebibytes(h.FileBytes), verified)
	}
	for _, st := range h.Storages {
		add(st.Name, st.Filesystem, st.Device, mebibytes(st.FileBytes))
	}
	add("versions", h.Go, "ringside "+h.Ringside, commit)
	add("backend", h.Backend, h.Reason)
	add("peers", h.Peers...)
	var method []string
	if h.Starts > 0 {
		method = append(method, fmt.Sprintf("turns of %d starts", h.Starts))
	}
	if rounds := fmt.Sprintf("%d rounds", h.Pairs); h.DurationMs > 0 { // otherwise a round ends when its work is done
		method = append(method, fmt.Sprintf("%s of %.0f ms where engines cannot take turns", rounds, h.DurationMs))
	}
	add("method", append(method, fmt.Sprintf("seed %d", h.Seed))...)
	if h.Stolen >= maxStolen {
		add("host", fmt.Sprintf("took %.0f %% of this virtual machine's time: take differences below 10 %% for noise, and measure again when it is less busy", 100*h.Stolen))
	}
	return out
}

func mebibytes(n int64) string { return strconv.FormatInt(n>>20, 10) + " MiB" }

// WriteHeader writes the circumstances of the run in lines of "name: value".
func (h Host) WriteHeader(w io.Writer) error {
	var b strings.Builder
	for _, f := range h.Facts() {
		fmt.Fprintf(&b, "%-9s %s\n", f.Name+":", f.Value)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteSkipped writes each part that was not measured, with the reason.
func (r *Run) WriteSkipped(w io.Writer) error {
	for _, s := range r.Skipped {
		if _, err := fmt.Fprintf(w, "skipped: %s\n", s); err != nil {
			return err
		}
	}
	return nil
}

// String describes the part and the reason.
func (s Skip) String() string {
	name := strings.TrimSpace(s.Suite + " " + s.Workload)
	if s.Engine != "" {
		name += ", engine " + s.Engine
	}
	return strings.Join(append([]string{name}, s.Params.Words()...), ", ") + ": " + s.Reason
}
