// SPDX-License-Identifier: MIT

package engine

import (
	"bytes"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

// fileLoggers are the engines whose log is a single file.
var fileLoggers = []interface {
	Engine
	Logger
}{OS{}, OSMutex{}}

// collect returns the records that a reader yields.
func collect(t *testing.T, read iter.Seq2[[]byte, error]) (records [][]byte) {
	t.Helper()
	for r, err := range read {
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, bytes.Clone(r))
	}
	return records
}

// appendAll appends records in order to a new log.
func appendAll(t *testing.T, l Logger, dir string, records [][]byte) Log {
	t.Helper()
	log, err := l.OpenLog(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if err := log.Append(r); err != nil {
			t.Fatal(err)
		}
	}
	return log
}

func randomRecords(sizes ...int) (records [][]byte) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range sizes {
		r := make([]byte, n)
		for i := range r {
			r[i] = byte(rng.Uint32())
		}
		records = append(records, r)
	}
	return records
}

// TestLogFileRecovers cuts a log, fills the cut part with zeros, and damages it, at each of its bytes.
// The records before that byte must come back, and nothing else.
func TestLogFileRecovers(t *testing.T) {
	records := randomRecords(128, 1, 0, 24, 0, 700, 128)
	for _, l := range fileLoggers {
		t.Run(l.Name(), func(t *testing.T) {
			dir := t.TempDir()
			if err := appendAll(t, l, dir, records).Close(); err != nil {
				t.Fatal(err)
			}
			whole, err := os.ReadFile(filepath.Join(dir, logName))
			if err != nil {
				t.Fatal(err)
			}
			check := func(what string, at, n int, content []byte) {
				t.Helper()
				read := func(yield func([]byte, error) bool) {
					readLogRecords(bytes.NewReader(content), int64(len(content)), yield)
				}
				if got := collect(t, read); !slices.EqualFunc(got, records[:n], bytes.Equal) {
					t.Fatalf("%s at byte %d of %d: got %d records, want the first %d", what, at, len(whole), len(got), n)
				}
			}
			before, end := 0, logHeader+len(records[0]) // complete records before a byte, and where the next ends
			for at := range whole {
				if at == end {
					before++
					end += logHeader + len(records[before])
				}
				check("cut", at, before, whole[:at])
				zeroed := bytes.Clone(whole)
				clear(zeroed[at:])
				if !bytes.Equal(zeroed[at:end], whole[at:end]) { // else the record is complete
					check("zeros", at, before, zeroed)
				}
				for bit := range 8 {
					damaged := bytes.Clone(whole)
					damaged[at] ^= 1 << bit
					check("damage", at, before, damaged)
				}
			}
			check("nothing", len(whole), len(records), whole)
			check("zeros behind", len(whole), len(records), append(bytes.Clone(whole), make([]byte, 5000)...))
		})
	}
}

// TestLogFileWithoutClose reads a log whose program stopped before Close.
func TestLogFileWithoutClose(t *testing.T) {
	records := randomRecords(128, 4096, 3<<20, 0, 5)
	for _, l := range fileLoggers {
		dir := t.TempDir()
		log := appendAll(t, l, dir, records)
		if got := collect(t, l.ReadLog(dir)); !slices.EqualFunc(got, records, bytes.Equal) {
			t.Errorf("%s: got %d records of %d", l.Name(), len(got), len(records))
		}
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestLogFileOfManyGoroutines reads what goroutines appended at once, in each one's order.
func TestLogFileOfManyGoroutines(t *testing.T) {
	const goroutines, each = 8, 20
	for _, l := range fileLoggers {
		dir := t.TempDir()
		log := appendAll(t, l, dir, nil)
		var wg sync.WaitGroup
		for g := range goroutines {
			wg.Go(func() {
				for i := range each {
					if err := log.Append(fmt.Appendf(nil, "%d %d %s", g, i, make([]byte, i*g))); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		var next [goroutines]int
		for _, r := range collect(t, l.ReadLog(dir)) {
			var g, i int
			if _, err := fmt.Sscanf(string(r), "%d %d", &g, &i); err != nil || i != next[g] || len(r) < i*g {
				t.Fatalf("%s: record %q, next ones %v, %v", l.Name(), r, next, err)
			}
			next[g]++
		}
		if next != [goroutines]int{each, each, each, each, each, each, each, each} {
			t.Errorf("%s: records of each goroutine %v", l.Name(), next)
		}
	}
}

// TestLogFileFailureIsFinal closes the file below a log. After a failed write or sync it is unknown what
// the disk has, so no later append may succeed.
func TestLogFileFailureIsFinal(t *testing.T) {
	for _, l := range fileLoggers {
		log := appendAll(t, l, t.TempDir(), randomRecords(10))
		var file **os.File
		switch log := log.(type) {
		case *groupCommit:
			file = &log.file
		case *mutexLog:
			file = &log.file
		}
		works := *file
		*file = nil // its methods return os.ErrInvalid
		if err := log.Append([]byte("lost")); err == nil {
			t.Fatalf("%s: no error", l.Name())
		}
		*file = works
		if err := log.Append([]byte("after")); err == nil {
			t.Errorf("%s: an append after a failure succeeded", l.Name())
		}
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	}
}
