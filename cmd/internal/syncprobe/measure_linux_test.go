// SPDX-License-Identifier: MIT

package syncprobe

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/features"
)

func TestMeasure(t *testing.T) {
	dir := t.TempDir()
	r, err := Measure(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range r.Ways {
		ring := strings.HasPrefix(w.Name, "ring")
		switch {
		case w.Reason != "" && ring && features.HaveIOURing() != nil:
		case w.Reason != "" || w.Min <= 0 || w.Median < w.Min || w.Max < w.Median:
			t.Errorf("%+v", w)
		}
	}
	if len(r.Ways) != 6 {
		t.Errorf("%d ways", len(r.Ways))
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	var b strings.Builder
	if err := r.WriteText(&b); err != nil || strings.Count(b.String(), "\n") != len(r.Ways)+2 {
		t.Errorf("%v:\n%s", err, &b)
	}
}

func TestMeasureFails(t *testing.T) {
	if _, err := Measure(t.Context(), filepath.Join(t.TempDir(), "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Measure(ctx, t.TempDir()); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}
