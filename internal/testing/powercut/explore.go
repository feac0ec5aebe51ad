// SPDX-License-Identifier: MIT

package powercut

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Explore selects the states that are tried.
type Explore struct {
	Seed   uint64
	States int // roughly the number of states over all cuts; each cut has at least a few
	// Every, if more than 1, tries one of that many cuts.
	Every int
	// From is the first operation after which the power is cut.
	From int
	// With Only, Cut and Number choose one state, to reproduce a failure.
	Only        bool
	Cut, Number int
	// Dir is the directory in which states are built; it is emptied for each. Without
	// it Check has the files in the State only.
	Dir string
	// Sector is the number of bytes that the disk writes whole or not at all; 0 means 512.
	Sector int64
	// Check recovers the state that was built in dir and verifies it.
	Check func(s *State, dir string) error
}

// Result counts the tried states.
type Result struct {
	Cuts   int // moments
	States int // that were built and checked
	Same   int // that had been checked before
}

// Failure is a state that a check rejected.
type Failure struct {
	Seed  uint64
	State *State
	Err   error
}

func (f *Failure) Unwrap() error { return f.Err }

func (f *Failure) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, cut %d, state %d, acknowledged %v: %v", f.Seed, f.State.Cut, f.State.Number, f.State.Acked, f.Err)
	for i := max(0, f.State.Cut-6); i < f.State.Cut; i++ {
		fmt.Fprintf(&b, "\n  before: %s", f.State.trace.Describe(i))
	}
	for _, result := range f.State.results {
		fmt.Fprintf(&b, "\n  %s", result)
	}
	return b.String()
}

const (
	defaultSector = 512
	// exhaustive is the largest number of pending operations of which all subsets are tried.
	exhaustive = 4
)

// Run builds states and checks them. It returns a *Failure for the first state that is
// rejected.
func (t *Trace) Run(e Explore) (Result, error) {
	cuts := t.cuts()
	res := Result{}
	seen := map[uint64]bool{}
	hashing := maphash.MakeSeed()
	w := t.walk(cmp.Or(e.Sector, defaultSector))
	for i, cut := range cuts {
		w.to(cut)
		if every := uint64(max(e.Every, 1)); e.Only && cut != e.Cut || !e.Only && uint64(i)%every != e.Seed%every || cut <= e.From {
			continue
		}
		res.Cuts++
		rng := rand.New(rand.NewPCG(e.Seed, uint64(cut)))
		for number, c := range w.choices(rng, e.States/len(cuts)) {
			if e.Only && number != e.Number {
				continue
			}
			s := w.state(c)
			s.Number = number
			h := s.hash(hashing)
			if seen[h] {
				res.Same++
				continue
			}
			seen[h] = true
			res.States++
			if err := e.try(s); err != nil {
				return res, &Failure{e.Seed, s, err}
			}
		}
	}
	return res, nil
}

func (e Explore) try(s *State) error {
	if e.Dir == "" {
		return e.Check(s, "")
	}
	entries, err := os.ReadDir(e.Dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := os.RemoveAll(filepath.Join(e.Dir, entry.Name())); err != nil {
			return err
		}
	}
	if err := s.Build(e.Dir); err != nil {
		return err
	}
	return e.Check(s, e.Dir)
}

// Random returns a state that the disk may have at the end of the trace.
func (t *Trace) Random(rng *rand.Rand) *State {
	w := t.walk(defaultSector)
	w.to(len(t.Ops))
	return w.state(w.random(rng))
}

// Least returns the state at the end of the trace that has only synced operations.
func (t *Trace) Least() *State {
	w := t.walk(defaultSector)
	w.to(len(t.Ops))
	return w.state(make(choice, len(w.pending)))
}

// cuts returns the moments to cut at: after each change and each acknowledgement.
func (t *Trace) cuts() []int {
	var cuts []int
	for i, op := range t.Ops {
		if op.Kind != Begin && op.Kind != End {
			cuts = append(cuts, i+1)
		}
	}
	return cuts
}

// walker follows a trace and keeps the durable state and the pending operations at each
// moment.
type walker struct {
	trace   *Trace
	at      int
	durable *image
	pending []int // operations, in their order
	acked   map[string]int
}

func (t *Trace) walk(sector int64) *walker {
	disk := &image{files: map[int][]byte{}, names: map[string]int{}, sector: sector}
	return &walker{trace: t, durable: disk, acked: map[string]int{}}
}

func (w *walker) to(cut int) {
	for ; w.at < cut; w.at++ {
		switch op := w.trace.Ops[w.at]; op.Kind {
		case Begin:
		case End:
			w.complete(op.Off)
		case Ack:
			w.acked[op.Name] = int(op.Off)
		case Lose:
			w.lose(op.File)
		default:
			w.pending = append(w.pending, w.at)
		}
	}
}

// lose forgets the writes to a file. Its truncations are durable: they are metadata, which file systems have in a
// journal, and whose loss would end the file system.
func (w *walker) lose(file int) {
	w.pending = slices.DeleteFunc(w.pending, func(i int) bool {
		op := w.trace.Ops[i]
		if op.Kind == Truncate && op.File == file {
			w.durable.change(op)
		}
		return (op.Kind == Write || op.Kind == Truncate) && op.File == file
	})
}

// complete makes the operations that a sync covers durable.
func (w *walker) complete(begin int64) {
	sync := w.trace.Ops[begin]
	w.pending = slices.DeleteFunc(w.pending, func(i int) bool {
		op := w.trace.Ops[i]
		var covered bool
		switch {
		case sync.Kind == Write:
			covered = int64(i) == begin
		case sync.Name != "":
			covered = int64(i) < begin && op.names() && filepath.Dir(op.Name) == filepath.Clean(sync.Name)
		default:
			covered = int64(i) < begin && !op.names() && op.File == sync.File
		}
		if covered {
			w.durable.change(op)
		}
		return covered
	})
}

// names reports whether the operation changes a directory.
func (op Op) names() bool { return op.Kind == Create || op.Kind == Unlink || op.Kind == Rename }

// choice is the result of each pending operation: a bit for each sector that was
// written, or all bits for an operation without sectors.
type choice []uint64

const whole = ^uint64(0)

// choices yields numbered results of the pending operations.
func (w *walker) choices(rng *rand.Rand, budget int) func(yield func(int, choice) bool) {
	n := len(w.pending)
	return func(yield func(int, choice) bool) {
		number := 0
		give := func(c choice) bool {
			number++
			return yield(number-1, c)
		}
		if n <= exhaustive {
			for bits := range 1 << n {
				c := make(choice, n)
				for i := range c {
					if bits>>i&1 != 0 {
						c[i] = whole
					}
				}
				if !give(c) {
					return
				}
			}
		} else if all := slices.Repeat(choice{whole}, n); !give(all) || !give(make(choice, n)) {
			return
		}
		for number < max(budget, 4) && n > 0 {
			if !give(w.random(rng)) {
				return
			}
		}
	}
}

// random chooses a result for each pending operation. Some states lose much, some
// little.
func (w *walker) random(rng *rand.Rand) choice {
	c := make(choice, len(w.pending))
	keep := []float64{0.05, 0.5, 0.95}[rng.IntN(3)]
	names := []float64{0, 0.5, 1}[rng.IntN(3)]
	torn := []float64{0, 0.3, 1}[rng.IntN(3)]
	for i, p := range w.pending {
		switch op := w.trace.Ops[p]; {
		case op.names():
			if rng.Float64() < names {
				c[i] = whole
			}
		case rng.Float64() < torn && op.Kind == Write:
			c[i] = rng.Uint64()
		case rng.Float64() < keep:
			c[i] = whole
		}
	}
	return c
}

// state builds the state that a choice leaves.
func (w *walker) state(c choice) *State {
	s := &State{Cut: w.at, Acked: maps.Clone(w.acked), trace: w.trace, image: w.durable.clone()}
	stuck := map[string]bool{} // names with a change that did not happen
	for i, p := range w.pending {
		op := w.trace.Ops[p]
		result := "kept"
		switch {
		case op.names():
			if c[i] == 0 || stuck[op.Name] || op.Kind == Rename && stuck[op.To] {
				stuck[op.Name], result = true, "lost"
				if op.Kind == Rename {
					stuck[op.To] = true
				}
				break
			}
			s.image.change(op)
		case c[i] == whole || op.Kind != Write && c[i] != 0:
			s.image.change(op)
		case c[i] == 0:
			result = "lost"
		default:
			s.image.tear(op, c[i])
			result = fmt.Sprintf("torn, sectors %b", c[i])
		}
		s.results = append(s.results, w.trace.Describe(p)+": "+result)
	}
	return s
}

// IsFailure returns the *Failure in err.
func IsFailure(err error) (*Failure, bool) { return errors.AsType[*Failure](err) }
