// SPDX-License-Identifier: MIT

package sqlitebench

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/measure"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil))) // hides warnings about unavailable parts
	os.Exit(m.Run())
}

// each runs a test with the engines in this program that differ most.
func each(t *testing.T, f func(t *testing.T, engine string)) {
	engines := []string{Memory, Default, Ringside, Log, Modernc, Mattn}
	if testing.Short() {
		engines = []string{Default, Ringside}
	}
	for _, engine := range engines {
		t.Run(engine, func(t *testing.T) {
			if err := Probe(engine); err != nil {
				t.Skip(err)
			}
			f(t, engine)
		})
	}
}

// run runs a round in dir and checks that it left nothing behind.
func run(t *testing.T, engine, dir string, w interface {
	Run(context.Context, string, measure.Plan) (measure.Sample, error)
},
) (measure.Sample, error) {
	t.Helper()
	s, err := w.Run(t.Context(), engine, measure.Plan{Measure: 20 * time.Millisecond})
	if left, _ := filepath.Glob(filepath.Join(dir, "round-*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	return s, err
}

func TestSpeed(t *testing.T) {
	each(t, func(t *testing.T, engine string) {
		dir := t.TempDir()
		s, err := run(t, engine, dir, &Speed{Dir: dir, Journal: WAL, Scale: 1, Seed: 7})
		if err != nil {
			t.Fatal(err)
		}
		for test := range Tests {
			if s.Further[TestNs(test+1)] <= 0 {
				t.Errorf("the time of test %d is zero: %v", test+1, s.Further)
			}
		}
	})
}

func TestStatements(t *testing.T) {
	for i, want := range []int{1001, 25_003, 25_004, 102, 102, 2, 5000, 1002, 25_002, 25_002, 4, 1, 1, 1, 3003, 2} {
		got := statements(i, 1, 100)
		if len(got) != want {
			t.Errorf("test %d has %d statements, want %d", i+1, len(got), want)
		}
		if again := statements(i, 1, 100); !slices.Equal(got, again) {
			t.Errorf("two runs of test %d differ", i+1)
		}
	}
	for n, want := range map[int]string{
		0: "zero", 13: "thirteen", 40: "forty", 99: "ninety nine", 100: "one hundred", 13_153: "thirteen thousand one hundred fifty three",
		468_026: "four hundred sixty eight thousand twenty six",
	} {
		if got := words(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}

func TestTenants(t *testing.T) {
	each(t, func(t *testing.T, engine string) {
		if engine == Memory {
			t.Skip("a database in memory has one connection")
		}
		for _, w := range []Tenants{
			{Journal: Persist, Databases: 3, Connections: 1, Writer: true},
			{Journal: WAL, Databases: 1, Connections: 2},
			{Journal: WAL, Databases: 1, Connections: 2, Work: Order},
			{Journal: WAL, Databases: 1, Connections: 1, Work: Blob},
		} {
			w.Dir = t.TempDir()
			s, err := run(t, engine, w.Dir, &w)
			if err != nil || s.Ops == 0 || s.P99 == 0 {
				t.Errorf("%+v: %+v, %v", w, s, err)
			}
		}
	})
}

// TestTenantsMissRows deletes a row during the measurement: the final count must notice.
func TestTenantsMissRows(t *testing.T) {
	w := Tenants{Journal: WAL, Databases: 1, Connections: 1}
	one, err := w.open(Default, t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := closeTenants([]*tenant{one}); err != nil {
			t.Error(err)
		}
	}()
	for range 3 {
		if _, err := one.commit(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.check([]*tenant{one}); err != nil {
		t.Error(err)
	}
	if err := one.conn.Exec("DELETE FROM t WHERE n=1"); err != nil {
		t.Fatal(err)
	}
	if err := w.check([]*tenant{one}); err == nil || !strings.Contains(err.Error(), "2, not 3") {
		t.Errorf("a lost row: %v", err)
	}
}

func TestCold(t *testing.T) {
	base := t.TempDir()
	c := Cold{Dir: base, Rows: 500, Seed: 3, What: Make}
	if _, err := run(t, "", c.Dir, &c); err != nil {
		t.Fatal(err)
	}
	each(t, func(t *testing.T, engine string) {
		if engine == Memory {
			t.Skip("a database in memory is never cold")
		}
		for _, what := range ColdWork {
			c := c
			c.What = what
			s, err := run(t, engine, c.Dir, &c)
			if want := map[string]int64{Lookups: 50}[what]; err != nil || s.Ops != max(want, 1) {
				t.Errorf("%s: %+v, %v", what, s, err)
			}
		}
	})
	c.What, c.Rows = Scan, 501
	if _, err := run(t, Default, c.Dir, &c); err == nil {
		t.Error("a missing row is not noticed")
	}
}

func TestRefused(t *testing.T) {
	if err := Probe("postgres"); err == nil {
		t.Error("an unknown engine was accepted")
	}
	dir := t.TempDir()
	if _, err := run(t, Default, dir, &Speed{Dir: dir, Journal: "paper", Scale: 1}); err == nil {
		t.Error("an unknown journal mode was accepted")
	}
	if _, err := run(t, Default, dir, &Cold{Dir: dir, What: "sleep", Rows: MinRows}); err == nil {
		t.Error("unknown work was accepted")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := (&Speed{Dir: dir, Journal: WAL, Scale: 1}).Run(ctx, Default, measure.Plan{})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

// TestOpenOddPath opens a file whose name a URI must escape.
func TestOpenOddPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a b%20#c.db")
	c, err := Open(Ringside, path, WAL)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Exec("CREATE TABLE t(x)"), c.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}
