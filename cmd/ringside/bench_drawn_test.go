// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ringside-io/ringside/cmd/internal/sqlitebench"
	"github.com/ringside-io/ringside/cmd/internal/suite"
)

// TestDrawnCells draws many cells. A seed repeats them, and every suite, workload and journal mode is
// drawn.
func TestDrawnCells(t *testing.T) {
	const n = 600
	draw := func(seed uint64) (titles []string, all string) {
		a := &allBench{drawn: n}
		if err := a.configure(&benchFlags{seed: seed}); err != nil {
			t.Fatal(err)
		}
		if want := n * drawnTime; len(a.parts) != n || a.time != want {
			t.Errorf("%d cells in %v, want %d in %v", len(a.parts), a.time, n, want)
		}
		for _, p := range a.parts {
			titles = append(titles, p.title)
			switch b := p.b.(type) {
			case *fileBench:
				all += fmt.Sprintln(p.title, b.Blocks, b.Goroutines, b.Caches, b.Records)
			case *netBench:
				all += fmt.Sprintln(p.title, b.Connections, b.Sizes, b.Engines, b.Bodies)
			}
		}
		return titles, all
	}
	titles, first := draw(1)
	if _, again := draw(1); again != first {
		t.Error("a seed does not repeat the cells")
	}
	if _, other := draw(2); other == first {
		t.Error("two seeds draw the same cells")
	}
	want := []string{"randread", "randwrite", "sync", "open", "batch", "appends", "watching",
		"echo", "tls", "http", "unix", "churn", "pipeline", "stream", "udp"}
	for _, j := range suite.SQLiteWords()["journal"] {
		if j != sqlitebench.Rollback { // engines would not sync alike
			want = append(want, "SQLite, "+j)
		}
	}
	if slices.Contains(titles, "SQLite, "+sqlitebench.Rollback) {
		t.Error("rollback was drawn")
	}
	for _, title := range want {
		if !slices.Contains(titles, title) {
			t.Errorf("%s was not drawn", title)
		}
	}
	for _, a := range []*allBench{{drawn: -1}, {drawn: maxDrawn + 1}, {drawn: 1, full: true}} {
		if a.configure(&benchFlags{seed: 1}) == nil {
			t.Errorf("--drawn %d, --full %v: no error", a.drawn, a.full)
		}
	}
}
