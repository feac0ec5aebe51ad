// SPDX-License-Identifier: MIT

package ufile

import (
	"os"
	"path/filepath"
	"testing"
)

// TestReadFilesPassedOnLate passes a file on while the only goroutine that would read it has found
// nothing to do, and is ending: another one starts.
func TestReadFilesPassedOnLate(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := NewSystem(Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := &filesReader{s: s, ctx: t.Context(), names: []string{name, name}, files: 1, next: 1, open: 1, held: 1, running: 1, takers: 1}
	r.room.L, r.arrived.L, r.budget.cond.L = &r.mu, &r.mu, &r.mu
	if _, ok, end := r.take(false); ok || !end {
		t.Fatal("a file to read")
	}
	ring := new(filesRing)
	ring.fill(0, []string{name})
	r.finishBatch(ring, false)
	r.mu.Lock()
	read := r.takers > 0 || len(r.results) > 0
	r.running-- // the one that was ending
	r.mu.Unlock()
	if !read {
		t.Fatal("no goroutine reads the file")
	}
	if d, ok := r.result(); !ok || string(d.Data) != "content" || d.Err != nil {
		t.Errorf("%q, %v", d.Data, d.Err)
	}
	if _, ok := r.result(); ok {
		t.Error("a second result")
	}
}
