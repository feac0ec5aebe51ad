// SPDX-License-Identifier: MIT

package appendlog

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// besideStore is a reader's view of a directory. Before some of the reader's calls another
// process changes the log.
type besideStore struct {
	*memStore
	rng   *rand.Rand
	calls int
	act   map[int]func() // by the number of the call
}

func (s *besideStore) call() {
	if act := s.act[s.calls]; act != nil {
		act()
	}
	s.calls++
}

// List returns the names that are there throughout, and some of those that are created or
// removed meanwhile, as readdir does.
func (s *besideStore) List() ([]string, error) {
	before, _ := s.memStore.List()
	s.call()
	after, err := s.memStore.List()
	names := slices.DeleteFunc(slices.Clone(before), func(name string) bool {
		return !slices.Contains(after, name) && s.rng.IntN(2) == 0
	})
	for _, name := range after {
		if !slices.Contains(before, name) && s.rng.IntN(2) == 0 {
			names = append(names, name)
		}
	}
	return names, err
}

func (s *besideStore) Open(name string, write bool) (segmentFile, error) {
	s.call()
	f, err := s.memStore.Open(name, write)
	if err != nil {
		return nil, err
	}
	return besideFile{f, s}, nil
}

type besideFile struct {
	segmentFile
	store *besideStore
}

func (f besideFile) Size() (int64, error) {
	f.store.call()
	return f.segmentFile.Size()
}

func (f besideFile) ReadAt(p []byte, off int64) (int, error) {
	f.store.call()
	return f.segmentFile.ReadAt(p, off)
}

// TestReadBesideEverything reads a log while another process appends, rotates and trims at
// each pair of the reader's calls. The reader may find that a segment was trimmed, and
// never reports damage.
func TestReadBesideEverything(t *testing.T) {
	ringtest.AsksNoKernel(t)
	for calls, first := 1, 0; first < calls; first++ {
		for second := first; second < calls+1; second += 1 + first%3 {
			for seed := range uint64(2) {
				calls = max(calls, readBeside(t, first, second, seed))
				if t.Failed() {
					t.Fatalf("changes at the calls %d and %d, seed %d", first, second, seed)
				}
			}
		}
	}
}

// readBeside returns how many calls the reader made.
func readBeside(t *testing.T, first, second int, seed uint64) int {
	t.Helper()
	s := newMemStore()
	a := openMem(t, s, Options{})
	put(t, a, "one", "two")
	st := &besideStore{memStore: s, rng: rand.New(rand.NewPCG(seed, 0)), act: map[int]func(){}}
	turn := func() {
		if err := a.Rotate(); err != nil {
			t.Error(err)
		}
		put(t, a, "more")
	}
	turn()
	st.act[first] = func() { turn(); turn() }
	st.act[second] = func() {
		turn()
		turn()
		if err := a.Trim(a.End()); err != nil {
			t.Error(err)
		}
	}
	next := uint64(0)
	for r, err := range readRecords(st, ReadOptions{}) {
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			t.Errorf("a whole log is reported as damaged: %v", err)
			break
		}
		if next != 0 && r.Seq != next {
			t.Errorf("record %d follows record %d", r.Seq, next-1)
		}
		next = r.Seq + 1
	}
	mustClose(t, a)
	return st.calls
}
