// SPDX-License-Identifier: MIT

package report

import (
	"fmt"
	"io"
	"strings"
)

// Fact is one circumstance of a run.
type Fact struct{ Name, Value string }

// Facts are the circumstances of the run that are known.
func (h Host) Facts() []Fact {
	var out []Fact
	add := func(name string, parts ...string) {
		if text := joinNonEmpty(parts); text != "" {
			out = append(out, Fact{name, text})
		}
	}
	add("kernel", h.OS+"/"+h.Arch, h.Kernel)
	add("cpu", h.CPU, fmt.Sprintf("%d cores", h.Cores), fmt.Sprintf("GOMAXPROCS %d", h.GOMAXPROCS), memoryWords(h.Memory))
	add("storage", h.Device, h.Filesystem, h.Mount)
	add("file", fileWords(h))
	for _, st := range h.Storages {
		add(st.Name, st.Filesystem, st.Device, fmt.Sprintf("%.0f MiB", float64(st.FileBytes)/(1<<20)))
	}
	add("versions", h.Go, "ringside "+h.Ringside, prefixed("commit ", h.Commit))
	add("backend", h.Backend, h.Reason)
	add("peers", h.Peers...)
	method := fmt.Sprintf("%d interleaved pairs", h.Pairs)
	if h.Looks > 1 {
		method = fmt.Sprintf("%d interleaved pairs, %d at most where undecided,", h.Pairs, h.Looks*h.Pairs)
	}
	if h.DurationMs > 0 { // otherwise a round ends when its work is done
		method += fmt.Sprintf(" of %.0f ms", h.DurationMs)
	}
	add("method", method, "medians", fmt.Sprintf("seed %d", h.Seed))
	return out
}

// WriteHeader writes the circumstances of the run in lines of "name: value".
func (h Host) WriteHeader(w io.Writer) error {
	var b strings.Builder
	for _, f := range h.Facts() {
		fmt.Fprintf(&b, "%-9s %s\n", f.Name+":", f.Value)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func memoryWords(bytes int64) string {
	if bytes == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f GiB memory", float64(bytes)/(1<<30))
}

func fileWords(h Host) string {
	if h.FileBytes == 0 {
		return ""
	}
	size := fmt.Sprintf("%.0f MiB", float64(h.FileBytes)/(1<<20))
	if h.Verified {
		return size + ", content of reads verified"
	}
	return size + ", content not verified, as this run did not make it"
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

func joinNonEmpty(parts []string) string {
	var kept []string
	for _, p := range parts {
		if p != "" {
			kept = append(kept, p)
		}
	}
	return strings.Join(kept, ", ")
}

// WriteSkipped names each part that was not measured, with the reason.
func (r *Run) WriteSkipped(w io.Writer) error {
	for _, s := range r.Skipped {
		if _, err := fmt.Fprintf(w, "skipped: %s\n", s); err != nil {
			return err
		}
	}
	return nil
}

// String names the part and the reason.
func (s Skip) String() string {
	name := s.Suite
	if s.Workload != "" {
		name += " " + s.Workload
	}
	if s.Engine != "" {
		name += ", engine " + s.Engine
	}
	for _, key := range []string{"storage", "cache", "goroutines", "block", "ring", "batch", "source", "mode", "active", "idle", "connections", "size", "gomaxprocs", "handler", "direction", "messages", "client", "journal", "databases", "writer", "what"} {
		if v, ok := s.Params[key]; ok {
			name += fmt.Sprintf(", %s %v", key, v)
		}
	}
	return name + ": " + s.Reason
}
