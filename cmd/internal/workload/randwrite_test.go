// SPDX-License-Identifier: MIT

package workload

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/engine"
	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/ufile"
)

func writeJob(span int64, block, goroutines int) Job {
	return Job{
		Suite: "file", Workload: "randwrite", Goroutines: goroutines, Warm: time.Millisecond, Measure: 10 * time.Millisecond,
		Work: &RandWrite{Span: span, Block: block, Seed: 4, Stamp: 5},
	}
}

func TestRandWriteStampsAlignedBlocksOfTheSpan(t *testing.T) {
	const span, block = 40 * datafile.UnitSize, 4 * datafile.UnitSize
	m, s, seen := roundOver(t, writeJob(span+datafile.UnitSize, block, 3), 64*datafile.UnitSize, span/block)
	if s.Ops == 0 || s.Bytes != s.Ops*block {
		t.Errorf("sample %+v", s)
	}
	for off := range seen {
		if off%block != 0 || off < 0 || off+block > span {
			t.Fatalf("written at offset %d", off)
		}
	}
	if len(seen) != span/block || m.closed != 1 || m.synced != 1 || m.datasynced != 0 {
		t.Errorf("%d of %d blocks were written, closed %d times, synced %d and %d times", len(seen), span/block, m.closed, m.synced, m.datasynced)
	}
	for off := range seen {
		if err := datafile.CheckStamps(m.data[off:off+block], 5, off); err != nil {
			t.Error(err)
		}
	}
	if err := datafile.Check(m.data[span:], contentSeed, span); err != nil {
		t.Errorf("behind the span: %v", err)
	}
}

// TestSyncedWritesAreEachDurable counts the syncs: one for each write, also of the warm-up.
func TestSyncedWritesAreEachDurable(t *testing.T) {
	m := newMemory(64 * datafile.UnitSize)
	j := writeJob(int64(len(m.data)), datafile.UnitSize, 3)
	of[RandWrite](j).Sync = true
	s, err := j.RunWith(t.Context(), m)
	if err != nil || s.Ops == 0 || m.datasynced != len(m.offsets) {
		t.Errorf("%d operations, %d writes, %d syncs, %v", s.Ops, len(m.offsets), m.datasynced, err)
	}
	m.syncErr = io.ErrNoProgress
	if _, err := j.RunWith(t.Context(), m); !errors.Is(err, io.ErrNoProgress) || m.closed != 2 {
		t.Errorf("failing sync: %v, closed %d times", err, m.closed)
	}
}

func TestLostWriteIsAHardFailure(t *testing.T) {
	for _, synced := range []bool{false, true} {
		m := newMemory(64 * datafile.UnitSize)
		m.lose = true
		j := writeJob(int64(len(m.data)), datafile.UnitSize, 2)
		of[RandWrite](j).Sync = synced
		_, err := j.RunWith(t.Context(), m)
		if _, ok := errors.AsType[*datafile.MismatchError](err); !ok || m.closed != 1 {
			t.Errorf("synced %v: got %v, closed %d times", synced, err, m.closed)
		}
	}
}

func TestRandWriteErrors(t *testing.T) {
	m := newMemory(8 * datafile.UnitSize)
	if _, err := writeJob(int64(len(m.data)), 1000, 1).RunWith(t.Context(), m); err == nil {
		t.Error("block not aligned: no error")
	}
	good := writeJob(int64(len(m.data)), datafile.UnitSize, 2)
	if _, err := good.RunWith(t.Context(), plain{}); err == nil {
		t.Error("an engine that does not write: no error")
	}
	m.writeErr = io.ErrShortWrite
	if _, err := good.RunWith(t.Context(), m); !errors.Is(err, io.ErrShortWrite) || m.closed != 1 {
		t.Errorf("full disk: %v, closed %d times", err, m.closed)
	}
}

// TestRandWriteEngines overwrites a real file with every engine, with and without syncs.
func TestRandWriteEngines(t *testing.T) {
	d := realFile(t)
	engines := []string{engine.NameOS, engine.NameRingside}
	if backend, _ := ufile.Backend(); backend == features.ModeRing.String() {
		engines = append(engines, engine.NameRing)
	}
	for _, name := range engines {
		for _, synced := range []bool{false, true} {
			for _, direct := range directness(t, d.Path()) {
				j := writeJob(d.Size(), 2*datafile.UnitSize, 4)
				j.Engine, of[RandWrite](j).Path, of[RandWrite](j).Direct, of[RandWrite](j).Sync = name, d.Path(), direct, synced
				if s, err := j.Run(t.Context()); err != nil || s.Ops == 0 || s.Backend == "" {
					t.Errorf("%s, direct %v, synced %v: %+v, %v", name, direct, synced, s, err)
				}
			}
		}
	}
}
