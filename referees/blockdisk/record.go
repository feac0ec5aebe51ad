// SPDX-License-Identifier: MIT

package blockdisk

import (
	"encoding/gob"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strings"
)

// pageSize is the unit in which contents are stored, and the larger of the two units of torn
// writes. The smaller one is the sector of the disk.
const pageSize = 4096

// Kind is the kind of an [Op].
type Kind int

const (
	// Write stores Data at Off.
	Write Kind = iota
	// Flush makes all earlier writes durable.
	Flush
	// Note is an event of the workload, such as an acknowledged commit.
	Note
)

// Op is one entry of a record.
type Op struct {
	Kind Kind
	Off  int64
	Data []byte
	Note any
}

// Record is the sequence of requests to a [Disk].
type Record struct {
	Base   image // the content of the disk at the start
	Sector int   // of the disk
	Ops    []Op
	// Whole are ranges of the disk, as offsets of start and end, that are never torn. The file
	// system writes structures larger than a sector there in place, and cannot be mounted without
	// them.
	Whole [][2]int64
}

// Save writes a record to a file, for [Load]. The types of notes must be registered with
// package gob.
func (r *Record) Save(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(gob.NewEncoder(f).Encode(r), f.Close())
}

// Load reads a record written by Save.
func Load(name string) (*Record, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := new(Record)
	return r, gob.NewDecoder(f).Decode(r)
}

// image is the content of a disk. Pages that are missing are zero. A page is never
// changed in place, because images share them.
type image map[int64]*[pageSize]byte

// read copies the content at off into p.
func (m image) read(p []byte, off int64) {
	for len(p) > 0 {
		in := off % pageSize
		n := min(int64(len(p)), pageSize-in)
		if page := m[off/pageSize]; page != nil {
			copy(p[:n], page[in:])
		} else {
			clear(p[:n])
		}
		p, off = p[n:], off+n
	}
}

// write stores p at off.
func (m image) write(p []byte, off int64) {
	for len(p) > 0 {
		in := off % pageSize
		n := min(int64(len(p)), pageSize-in)
		page := new([pageSize]byte)
		if old := m[off/pageSize]; old != nil && n < pageSize {
			*page = *old
		}
		copy(page[in:], p[:n])
		if *page == ([pageSize]byte{}) {
			delete(m, off/pageSize)
		} else {
			m[off/pageSize] = page
		}
		p, off = p[n:], off+n
	}
}

// Flushes returns the number of flushes in the record.
func (r *Record) Flushes() int {
	n := 0
	for _, op := range r.Ops {
		if op.Kind == Flush {
			n++
		}
	}
	return n
}

// Deaf returns the record of a device that ignores the flushes for which drop returns true. drop
// gets the number of the flush, from 0.
func (r *Record) Deaf(drop func(n int) bool) *Record {
	out := &Record{Base: r.Base, Sector: r.Sector, Whole: r.Whole}
	n := 0
	for _, op := range r.Ops {
		if op.Kind == Flush {
			n++
			if drop(n - 1) {
				continue
			}
		}
		out.Ops = append(out.Ops, op)
	}
	return out
}

// State is a possible content of the disk after a power cut.
type State struct {
	Cut   int   // the first Cut operations of the record had been issued
	Notes []any // made before the cut
	Fates []string

	content image
}

// String describes the state and what became of each write that was not durable.
func (s *State) String() string {
	fates := s.Fates
	const most = 40
	if len(fates) > most {
		fates = append(fates[:most:most], fmt.Sprintf("and %d more", len(s.Fates)-most))
	}
	return fmt.Sprintf("cut after %d operations, unflushed writes:\n  %s", s.Cut, strings.Join(fates, "\n  "))
}

// Walk builds states of a record, one after another, from a seed.
type Walk struct {
	record *Record
	seed   uint64

	at      int
	durable image
	pending []int // unflushed writes
	notes   []any
	acks    []int // operations that are notes
}

// Walk returns a walk for a seed.
func (r *Record) Walk(seed uint64) *Walk {
	w := &Walk{record: r, seed: seed}
	for i, op := range r.Ops {
		if op.Kind == Note {
			w.acks = append(w.acks, i)
		}
	}
	w.rewind()
	return w
}

func (w *Walk) rewind() {
	w.at, w.durable, w.pending, w.notes = 0, maps.Clone(w.record.Base), nil, nil
	if w.durable == nil {
		w.durable = image{}
	}
}

// Cuts returns the positions of n cuts in ascending order. Half of them are directly after a note,
// where the acknowledgements are newest. The others are anywhere.
func (w *Walk) Cuts(n int) []int {
	cuts := make([]int, n)
	rng := rand.New(rand.NewPCG(w.seed, 0))
	for i := range cuts {
		cuts[i] = rng.IntN(len(w.record.Ops) + 1)
		if len(w.acks) > 0 && i%2 == 0 {
			cuts[i] = min(w.acks[rng.IntN(len(w.acks))]+1+rng.IntN(2), len(w.record.Ops))
		}
	}
	// Ascending, so that the walk goes over the record only once.
	for i := 1; i < n; i++ {
		for j := i; j > 0 && cuts[j] < cuts[j-1]; j-- {
			cuts[j], cuts[j-1] = cuts[j-1], cuts[j]
		}
	}
	return cuts
}

// to moves to the moment after the given number of operations.
func (w *Walk) to(cut int) {
	if cut < w.at {
		w.rewind()
	}
	for ; w.at < cut; w.at++ {
		switch op := w.record.Ops[w.at]; op.Kind {
		case Write:
			w.pending = append(w.pending, w.at)
		case Flush:
			for _, i := range w.pending {
				w.durable.write(w.record.Ops[i].Data, w.record.Ops[i].Off)
			}
			w.pending = w.pending[:0]
		case Note:
			w.notes = append(w.notes, op.Note)
		}
	}
}

// State builds the state with a number at a cut. The same seed, cut and number give the same state.
func (w *Walk) State(cut, number int) *State {
	w.to(cut)
	rng := rand.New(rand.NewPCG(w.seed, uint64(cut)<<20|uint64(number)))
	s := &State{Cut: cut, Notes: append([]any(nil), w.notes...), content: maps.Clone(w.durable)}
	var (
		keep = []float64{0, 0.05, 0.5, 0.95, 1}[rng.IntN(5)]
		torn = []float64{0, 0, 0.3, 1}[rng.IntN(4)]
		unit = []int{w.record.Sector, pageSize}[rng.IntN(2)]
	)
	for _, i := range w.pending {
		op := w.record.Ops[i]
		fate := "kept"
		switch {
		case keep > 0 && keep < 1 && rng.Float64() < torn && len(op.Data) > unit && !w.record.whole(op):
			s.content.tear(op, unit, rng)
			fate = fmt.Sprintf("torn at %d", unit)
		case rng.Float64() < keep:
			s.content.write(op.Data, op.Off)
		default:
			fate = "dropped"
		}
		s.Fates = append(s.Fates, fmt.Sprintf("%d: %d bytes at %d: %s", i, len(op.Data), op.Off, fate))
	}
	return s
}

// whole reports whether a write is never torn.
func (r *Record) whole(op Op) bool {
	for _, w := range r.Whole {
		if op.Off < w[1] && op.Off+int64(len(op.Data)) > w[0] {
			return true
		}
	}
	return false
}

// tear writes some units of a write.
func (m image) tear(op Op, unit int, rng *rand.Rand) {
	keep := rng.Float64()
	for at := 0; at < len(op.Data); at += unit {
		if rng.Float64() < keep {
			m.write(op.Data[at:min(at+unit, len(op.Data))], op.Off+int64(at))
		}
	}
}
