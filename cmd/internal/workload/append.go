// SPDX-License-Identifier: MIT

package workload

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/engine"
	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// Append appends records durably to a log and reads the log afterwards. Every record whose append
// returned must be there, complete, and in the order in which its goroutine appended it.
type Append struct {
	// Dir is an existing directory. The log gets a directory of its own in it, which is removed
	// afterwards.
	Dir string `json:"dir"`
	// Record is the size of a record in bytes, at least minRecord.
	Record int `json:"record"`
	// Seed selects the content.
	Seed uint64 `json:"seed"`
}

// A record begins with the goroutine and its count of records before this one.
const (
	recordGoroutine = 0
	recordNumber    = 8
	minRecord       = 24
)

// appending is a log during a round.
type appending struct {
	Append
	keeper  engine.Logger
	log     engine.Log
	dir     string
	writers []*recordWriter
}

// Open creates the log. Use newOp to make operations and finish to close the log.
func (w Append) Open(e engine.Engine) (*appending, error) {
	keeper, ok := e.(engine.Logger)
	switch {
	case !ok:
		return nil, fmt.Errorf("engine %s keeps no logs", e.Name())
	case w.Record < minRecord:
		return nil, fmt.Errorf("records of %d bytes: at least %d", w.Record, minRecord)
	}
	dir, err := os.MkdirTemp(w.Dir, "append-")
	if err != nil {
		return nil, err
	}
	log, err := keeper.OpenLog(dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &appending{Append: w, keeper: keeper, log: log, dir: dir}, nil
}

// newOp returns one goroutine's operation, for [measure.Run]. Goroutines are numbered from 0.
func (a *appending) newOp(goroutine int) (measure.Op, error) {
	w := &recordWriter{log: a.log, seed: a.Seed, goroutine: uint64(goroutine), record: make([]byte, a.Record)}
	a.writers = append(a.writers, w)
	return w.appendOne, nil
}

// finish closes the log, checks it unless the round failed, and removes it.
func (a *appending) finish(failed error) error {
	err := a.log.Close()
	if err == nil && failed == nil {
		err = a.check()
	}
	return errors.Join(err, os.RemoveAll(a.dir))
}

// check reads the log and returns an error if an acknowledged record is missing.
func (a *appending) check() error {
	want, found := make([]byte, a.Record), make([]uint64, len(a.writers))
	for record, err := range a.keeper.ReadLog(a.dir) {
		if err != nil {
			return fmt.Errorf("read the log: %w", err)
		}
		if len(record) != len(want) {
			return fmt.Errorf("the log has a record of %d bytes instead of %d", len(record), len(want))
		}
		g := binary.LittleEndian.Uint64(record[recordGoroutine:])
		if g >= uint64(len(found)) {
			return fmt.Errorf("the log has a record of goroutine %d of %d", g, len(found))
		}
		fillRecord(want, a.Seed, g, found[g])
		if string(record) != string(want) {
			return fmt.Errorf("the log has a wrong record where number %d of goroutine %d should be", found[g], g)
		}
		found[g]++
	}
	for g, w := range a.writers {
		if found[g] != w.acknowledged {
			return fmt.Errorf("the log has %d of the %d records of goroutine %d that were acknowledged", found[g], w.acknowledged, g)
		}
	}
	return nil
}

// recordWriter is the state of one goroutine of an Append.
type recordWriter struct {
	log             engine.Log
	seed, goroutine uint64
	acknowledged    uint64
	record          []byte
}

func (w *recordWriter) appendOne() (int, error) {
	fillRecord(w.record, w.seed, w.goroutine, w.acknowledged)
	if err := w.log.Append(w.record); err != nil {
		return 0, err
	}
	w.acknowledged++
	return len(w.record), nil
}

// fillRecord writes a record. Each byte is derived from the seed, the goroutine and the number of
// the record.
func fillRecord(record []byte, seed, goroutine, number uint64) {
	binary.LittleEndian.PutUint64(record[recordGoroutine:], goroutine)
	binary.LittleEndian.PutUint64(record[recordNumber:], number)
	state := seed ^ goroutine<<48 ^ number
	rest := record[recordNumber+8:]
	for ; len(rest) >= 8; rest = rest[8:] {
		binary.LittleEndian.PutUint64(rest, datafile.SplitMix(&state))
	}
	for i := range rest {
		rest[i] = byte(number)
	}
}

// Run implements [Work].
func (w *Append) Run(ctx context.Context, name string, plan measure.Plan) (measure.Sample, error) {
	return onFiles(ctx, w, name, plan)
}

// runWith measures durable records.
func (w *Append) runWith(ctx context.Context, e engine.Engine, plan measure.Plan) (s measure.Sample, err error) {
	a, err := w.Open(e)
	if err != nil {
		return measure.Sample{}, err
	}
	defer func() { err = errors.Join(err, a.finish(err)) }()
	return measure.Run(ctx, plan, a.newOp)
}
