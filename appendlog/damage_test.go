// SPDX-License-Identifier: MIT

package appendlog

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

var damageRounds = flag.Int("damage.rounds", 0, "how many logs TestDamageAgain damages; 0 means few")

// TestDamageAgain damages a log at random, accepts the loss, uses the log, and damages it
// again, several times. A model has each acknowledged record with its place. Each time:
//   - Read, and Open with Records, either return every record of the model, or an error;
//   - Salvage returns each record whose bytes are as they were, in a segment whose header
//     is as it was;
//   - Open with AcceptLoss continues with all that Salvage returned, and gives no number
//     twice; the next Open accepts the same without the option.
func TestDamageAgain(t *testing.T) {
	ringtest.AsksNoKernel(t)
	for seed := range uint64(cmp.Or(*damageRounds, ringtest.Rounds(200, 40))) {
		m := &damageModel{rng: rand.New(rand.NewPCG(seed, 1)), s: newMemStore(), alive: map[uint64]modelRecord{}, ever: map[uint64]string{}}
		if err := m.live(); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, strings.Join(m.events, "\n"))
		}
	}
}

type modelRecord struct {
	Position
	data string
}

// damageModel is a log and what it must contain.
type damageModel struct {
	rng    *rand.Rand
	s      *memStore
	alive  map[uint64]modelRecord // by number
	ever   map[uint64]string      // all records that were appended
	last   uint64                 // the highest number that was given
	before map[string][]byte      // the files before the damage
	moved  bool                   // files have exchanged their names
	events []string
}

func (m *damageModel) options(accept bool) Options {
	return Options{SegmentSize: 4096, Ahead: -1 + m.rng.IntN(2)*9000, AcceptLoss: accept, Sync: SyncMode(m.rng.IntN(3)),
		Logger: slog.New(slog.DiscardHandler)}
}

func (m *damageModel) live() error {
	a, err := tryMem(m.s, m.options(false))
	if err != nil {
		return err
	}
	if err := m.use(a, 5+m.rng.IntN(60)); err != nil {
		return err
	}
	for range 3 {
		m.before = map[string][]byte{}
		for name, f := range m.s.live {
			m.before[name] = bytes.Clone(f.data)
		}
		m.moved = false
		for range 1 + m.rng.IntN(3) {
			m.events = append(m.events, m.damage())
		}
		if len(m.s.live) == 0 {
			return nil // nothing shows that there was a log
		}
		if err := m.again(); err != nil {
			return err
		}
	}
	return nil
}

// use appends records to a log, rotates and trims it, and closes or kills it.
func (m *damageModel) use(a *Log, n int) error {
	for range n {
		records := make([][]byte, 1)
		if m.rng.IntN(6) == 0 {
			records = make([][]byte, 1+m.rng.IntN(5))
		}
		for i := range records {
			records[i] = fmt.Appendf(nil, "%d %s", m.rng.Uint64(), strings.Repeat("x", m.rng.IntN(300)))
		}
		pos, err := a.AppendBatch(records)
		if err != nil {
			return err
		}
		if pos.Seq <= m.last {
			return fmt.Errorf("number %d was given before", pos.Seq)
		}
		for _, d := range records {
			m.alive[pos.Seq], m.ever[pos.Seq] = modelRecord{pos, string(d)}, string(d)
			m.last = pos.Seq
			pos.Offset, pos.Seq = pos.Offset+recordSize(len(d)), pos.Seq+1
		}
		if m.rng.IntN(20) == 0 {
			if err := a.Rotate(); err != nil {
				return err
			}
		}
	}
	if m.rng.IntN(4) == 0 {
		if err := m.trim(a); err != nil {
			return err
		}
	}
	if err := a.Sync(); err != nil {
		return err
	}
	if m.rng.IntN(2) == 0 {
		if err := a.Close(); err != nil {
			return err
		}
	}
	m.s = m.s.restart()
	return nil
}

func (m *damageModel) trim(a *Log) error {
	if err := a.Trim(Position{Seq: m.rng.Uint64N(m.last)}); err != nil {
		return err
	}
	first := a.Segments()[0].Index
	maps.DeleteFunc(m.alive, func(_ uint64, r modelRecord) bool { return r.Segment < first })
	return nil
}

// damage changes a file of the log.
func (m *damageModel) damage() string {
	names := slices.Sorted(maps.Keys(m.s.live))
	if len(names) == 0 {
		return "nothing"
	}
	name := names[m.rng.IntN(len(names))]
	if m.rng.IntN(4) == 0 {
		name = names[len(names)-1] // the mark
	}
	f := m.s.live[name]
	n := len(f.data)
	if n == 0 {
		return "nothing"
	}
	at := m.rng.IntN(n)
	end := min(n, at+1+m.rng.IntN(600))
	switch kind := m.rng.IntN(9); kind {
	case 0:
		delete(m.s.live, name)
		return "delete " + name
	case 1:
		f.data = f.data[:at]
		return fmt.Sprintf("cut %s to %d", name, at)
	case 2:
		clear(f.data[at:end])
		return fmt.Sprintf("zero %s %d-%d", name, at, end)
	case 3:
		for i := at; i < end; i++ {
			f.data[i] = byte(m.rng.Uint32())
		}
		return fmt.Sprintf("overwrite %s %d-%d", name, at, end)
	case 4:
		f.data = append(f.data, f.data[at:]...)
		return fmt.Sprintf("append to %s its own bytes from %d", name, at)
	case 5:
		other := names[m.rng.IntN(len(names))]
		if m.rng.IntN(4) > 0 || m.s.live[other] == nil {
			break
		}
		f.data, m.s.live[other].data = m.s.live[other].data, f.data
		m.moved = true
		return "exchange " + name + " and " + other
	case 6:
		at = m.rng.IntN(min(n, segmentHeaderSize))
	}
	f.data[at] ^= 1 << m.rng.IntN(8)
	return fmt.Sprintf("flip a bit of %s at %d", name, at)
}

// again checks a damaged log, accepts its losses and uses it.

func (m *damageModel) again() error {
	if err := m.honest("Read", readRecords(m.s, ReadOptions{})); err != nil {
		return err
	}
	saved, err := m.salvage()
	if err != nil {
		return err
	}
	files := m.s.restart()
	if a, err := tryMem(m.s, m.options(false)); err == nil {
		if err := m.honest("Records", a.Records(Position{})); err != nil {
			return err
		}
		m.s = files
	} else if corrupt := (*CorruptError)(nil); !errors.As(err, &corrupt) {
		return fmt.Errorf("Open: %w", err)
	} else if err := sameFiles(m.s, files); err != nil {
		return err
	}
	for _, accept := range []bool{true, false} {
		a, err := tryMem(m.s, m.options(accept))
		if err != nil {
			return fmt.Errorf("Open, AcceptLoss %v: %w", accept, err)
		}
		m.events = append(m.events, fmt.Sprintf("open, AcceptLoss %v, lost: %v", accept, a.Recovery().Lost))
		found := map[uint64]modelRecord{}
		for r, err := range a.Records(Position{}) {
			if err != nil {
				return fmt.Errorf("Records, AcceptLoss %v: %w", accept, err)
			}
			found[r.Seq] = modelRecord{r.Position, string(r.Data)}
		}
		for seq, r := range saved {
			if found[seq] != r {
				return fmt.Errorf("AcceptLoss %v gave up record %d: %v, found %v", accept, seq, r.Position, found[seq].Position)
			}
		}
		if m.alive = found; accept {
			saved = nil
		}
		if err := m.use(a, 1+m.rng.IntN(20)); err != nil {
			return fmt.Errorf("after AcceptLoss %v: %w", accept, err)
		}
		if accept {
			saved = maps.Clone(m.alive)
		}
	}
	return nil
}

// honest checks that records are those of the model, and all of them unless there is an
// error.
func (m *damageModel) honest(what string, records func(func(Record, error) bool)) error {
	n, failed := 0, false
	for r, err := range records {
		if err != nil {
			failed = true
			break
		}
		if m.alive[r.Seq] == (modelRecord{r.Position, string(r.Data)}) {
			n++
		} else if m.ever[r.Seq] != string(r.Data) {
			return fmt.Errorf("%s returns a record at %+v that was not written there", what, r.Position)
		}
	}
	if n != len(m.alive) && !failed {
		return fmt.Errorf("%s returns %d of %d records and no error", what, n, len(m.alive))
	}
	return nil
}

// salvage returns what can be read, and checks that it is all that is intact.
func (m *damageModel) salvage() (map[uint64]modelRecord, error) {
	saved := map[uint64]modelRecord{}
	for r, err := range readRecords(m.s, ReadOptions{Salvage: true}) {
		if corrupt := (*CorruptError)(nil); err != nil && !errors.As(err, &corrupt) {
			return nil, err
		} else if err != nil {
			m.events = append(m.events, "salvage: "+err.Error())
			continue
		}
		if m.ever[r.Seq] != string(r.Data) { // it may be one that was given up, in a file that has moved
			return nil, fmt.Errorf("Salvage returns a record at %+v that was not written there", r.Position)
		}
		saved[r.Seq] = modelRecord{r.Position, string(r.Data)}
	}
	for seq, r := range m.alive {
		if m.intact(r) && saved[seq] != r {
			return nil, fmt.Errorf("Salvage does not return the intact record %+v", r.Position)
		}
	}
	return saved, nil
}

// intact reports whether a record and the header of its segment are as they were.
func (m *damageModel) intact(r modelRecord) bool {
	name := segmentName("", r.Segment)
	f, was := m.s.live[name], m.before[name]
	end := int(r.Offset + recordSize(len(r.data)))
	return !m.moved && f != nil && len(f.data) >= end && bytes.Equal(f.data[:segmentHeaderSize], was[:segmentHeaderSize]) &&
		bytes.Equal(f.data[r.Offset:end], was[r.Offset:end])
}

// sameFiles returns an error if two stores differ.
func sameFiles(a, b *memStore) error {
	if len(a.live) != len(b.live) {
		return errors.New("a refused Open created or removed files")
	}
	for name, f := range a.live {
		if g := b.live[name]; g == nil || !bytes.Equal(f.data, g.data) {
			return fmt.Errorf("a refused Open changed %s", name)
		}
	}
	return nil
}
