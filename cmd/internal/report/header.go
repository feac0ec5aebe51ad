// SPDX-License-Identifier: MIT

package report

import (
	"fmt"
	"io"
	"strings"
)

// WriteHeader writes the circumstances of the run in lines of "name: value".
func (h Host) WriteHeader(w io.Writer) error {
	var b strings.Builder
	line := func(name string, parts ...string) {
		if text := joinNonEmpty(parts); text != "" {
			fmt.Fprintf(&b, "%-9s %s\n", name+":", text)
		}
	}
	line("kernel", h.OS+"/"+h.Arch, h.Kernel)
	line("cpu", h.CPU, fmt.Sprintf("%d cores", h.Cores), fmt.Sprintf("GOMAXPROCS %d", h.GOMAXPROCS), memoryWords(h.Memory))
	line("storage", h.Device, h.Filesystem, h.Mount)
	line("file", fileWords(h))
	for _, st := range h.Storages {
		line(st.Name, st.Filesystem, st.Device, fmt.Sprintf("%.0f MiB", float64(st.FileBytes)/(1<<20)))
	}
	line("versions", h.Go, "ringside "+h.Ringside, prefixed("commit ", h.Commit))
	line("backend", h.Backend, h.Reason)
	line("peers", h.Peers...)
	method := fmt.Sprintf("%d interleaved pairs", h.Pairs)
	if h.DurationMs > 0 { // otherwise a round ends when its work is done
		method += fmt.Sprintf(" of %.0f ms", h.DurationMs)
	}
	line("method", method, "medians", fmt.Sprintf("seed %d", h.Seed))
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
	return size + ", content not verified (not made by this run)"
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
	for _, key := range []string{"storage", "cache", "goroutines", "block", "ring", "batch", "source", "mode", "active", "idle", "connections", "size", "gomaxprocs", "handler", "client", "journal", "databases", "writer", "what"} {
		if v, ok := s.Params[key]; ok {
			name += fmt.Sprintf(", %s %v", key, v)
		}
	}
	return name + ": " + s.Reason
}
