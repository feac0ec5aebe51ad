// SPDX-License-Identifier: MIT

package ycsb

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// TestMixes runs each mix, cached and cold, on both kinds of files. All leave the database as it was.
func TestMixes(t *testing.T) {
	j := Job{Dir: filepath.Join(t.TempDir(), "db"), Records: 2000, Seed: 1}
	_, err := j.Run(t.Context(), false, measure.Plan{})
	if !Known() {
		if !errors.Is(err, ErrMissing) {
			t.Fatal(err)
		}
		t.Skip("needs pebble: go test -tags peers, on Linux")
	}
	if err != nil {
		t.Fatal(err)
	}
	files := func() string {
		var names []string
		if err := eachFile(j.Dir, func(path string) error {
			data, err := os.ReadFile(path)
			names = append(names, filepath.Base(path), string(data))
			return err
		}); err != nil {
			t.Error(err)
		}
		return strings.Join(names, "\n")
	}
	if err := ReadIn(t.Context(), j.Dir); err != nil {
		t.Error(err)
	}
	before := files()
	for _, j.Mix = range Mixes() {
		for _, j.Cold = range []bool{false, true} {
			for _, ringside := range []bool{false, true} {
				plan := measure.Plan{Goroutines: 8, Warm: time.Millisecond, Measure: 20 * time.Millisecond}
				s, err := j.Run(t.Context(), ringside, plan)
				if err != nil || s.Ops == 0 {
					t.Errorf("%s, cold %v, ringside %v: %+v, %v", j.Mix, j.Cold, ringside, s, err)
				}
			}
		}
	}
	if files() != before {
		t.Error("a round has changed the database")
	}
	if rest, err := os.ReadDir(filepath.Dir(j.Dir)); err != nil || len(rest) != 1 {
		t.Errorf("rounds left files: %v, %v", rest, err)
	}
	if _, err := (Job{Dir: j.Dir, Mix: "G"}).Run(t.Context(), true, measure.Plan{}); err == nil || !strings.Contains(err.Error(), `"G"`) {
		t.Errorf("an unknown mix: %v", err)
	}
}

// TestShares counts the operations of each mix.
func TestShares(t *testing.T) {
	const steps = 10_000
	for name, m := range mixes {
		if sum := m.read + m.update + m.insert + m.scan + m.rewrite; sum != 100 {
			t.Errorf("%s: %d %%", name, sum)
		}
		var records atomic.Uint64
		records.Store(1000)
		db := &counting{}
		c := &client{db: db, mix: m, records: &records, random: rand.New(rand.NewPCG(1, 1))}
		c.zipf = rand.NewZipf(c.random, 1.01, 1, records.Load()-1)
		for range steps {
			if _, err := c.step(); err != nil {
				t.Fatal(err)
			}
		}
		for _, share := range []struct{ got, percent int }{
			{db.gets, m.read + m.rewrite}, {db.sets, m.update + m.insert + m.rewrite}, {db.scans, m.scan},
			{int(records.Load()) - 1000, m.insert},
		} {
			if want := steps * share.percent / 100; share.got < want*9/10 || share.got > want*11/10 {
				t.Errorf("%s: %d operations, want about %d", name, share.got, want)
			}
		}
	}
}

// counting is a store that has each record and counts its calls.
type counting struct {
	store
	gets, sets, scans int
}

func (s *counting) get(k []byte, check func([]byte) error) error { s.gets++; return nil }
func (s *counting) set(k, value []byte) error                    { s.sets++; return nil }
func (s *counting) scan([]byte, int, func(k, value []byte) error) error {
	s.scans++
	return nil
}

// TestCheck changes a record.
func TestCheck(t *testing.T) {
	var c client
	value := make([]byte, recordSize)
	fill(value, 7, 9)
	if err := c.check(key(7), value); err != nil {
		t.Error(err)
	}
	if c.check(key(8), value) == nil || c.check(key(7), value[1:]) == nil {
		t.Error("a value of another key, or of another length, is accepted")
	}
	for i := range value {
		value[i] ^= 1
		if c.check(key(7), value) == nil {
			t.Fatalf("a change of byte %d is accepted", i)
		}
		value[i] ^= 1
	}
}
