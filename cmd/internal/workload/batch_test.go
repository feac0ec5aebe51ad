// SPDX-License-Identifier: MIT

package workload

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/engine"
)

func batchJob(span int64, block, count int) Job {
	content := uint64(contentSeed)
	return Job{
		Suite: "file", Workload: "batch", Goroutines: 1, Warm: time.Millisecond, Measure: 10 * time.Millisecond,
		Work: &Batch{RandRead: RandRead{Span: span, Block: block, Seed: 3, Content: &content}, Count: count},
	}
}

func TestBatchReadsAllItsBlocks(t *testing.T) {
	const span, block, count = 40 * datafile.UnitSize, 4 * datafile.UnitSize, 7
	m, s, seen := roundOver(t, batchJob(span, block, count), 64*datafile.UnitSize, span/block)
	if s.Ops == 0 || s.Ops%count != 0 || s.Bytes != s.Ops*block || s.Max != 0 {
		t.Errorf("sample %+v", s)
	}
	for off := range seen {
		if off%block != 0 || off < 0 || off+block > span {
			t.Fatalf("read at offset %d", off)
		}
	}
	if len(seen) != span/block || len(m.offsets)%count != 0 {
		t.Errorf("%d of %d blocks were read in %d reads", len(seen), span/block, len(m.offsets))
	}
	if m.closed != 1 {
		t.Errorf("closed %d times", m.closed)
	}
}

func TestBatchVerifiesEveryBlock(t *testing.T) {
	m := newMemory(64 * datafile.UnitSize)
	reads := 0
	m.tamper = func(p []byte, off int64, n int, err error) (int, error) {
		if reads++; reads == 5 {
			datafile.Fill(p, contentSeed, off+datafile.UnitSize)
		}
		return n, err
	}
	_, err := batchJob(int64(len(m.data)), datafile.UnitSize, 8).RunWith(t.Context(), m)
	if _, ok := errors.AsType[*datafile.MismatchError](err); !ok {
		t.Errorf("one wrong block of eight: %v", err)
	}
}

func TestBatchErrors(t *testing.T) {
	m := newMemory(8 * datafile.UnitSize)
	for name, j := range map[string]Job{
		"no block":  batchJob(int64(len(m.data)), 0, 1),
		"no blocks": batchJob(int64(len(m.data)), datafile.UnitSize, 0),
	} {
		if _, err := j.RunWith(t.Context(), m); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	good := batchJob(int64(len(m.data)), datafile.UnitSize, 2)
	if _, err := good.RunWith(t.Context(), plain{}); err == nil {
		t.Error("an engine that reads no batches: no error")
	}
	m.tamper = func([]byte, int64, int, error) (int, error) { return 0, io.ErrClosedPipe }
	if _, err := good.RunWith(t.Context(), m); !errors.Is(err, io.ErrClosedPipe) || m.closed != 1 {
		t.Errorf("broken device: %v, closed %d times", err, m.closed)
	}
}

// TestBatchEngines reads a real file with every engine, verified.
func TestBatchEngines(t *testing.T) {
	d := realFile(t)
	for _, name := range []string{engine.NameOS, engine.NameRingside} {
		for _, direct := range directness(t, d.Path()) {
			j := batchJob(d.Size(), 2*datafile.UnitSize, 16)
			j.Engine, of[Batch](j).Path, of[Batch](j).Direct = name, d.Path(), direct
			if s, err := j.Run(t.Context()); err != nil || s.Ops == 0 || s.Backend == "" {
				t.Errorf("%s, direct %v: %+v, %v", name, direct, s, err)
			}
			// The file ends in the middle of a block.
			short := *of[Batch](j)
			short.Span, short.Block = d.Size()+datafile.UnitSize, int(d.Size())+datafile.UnitSize
			j.Work = &short
			if _, err := j.Run(t.Context()); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%s, direct %v, beyond the end: %v", name, direct, err)
			}
		}
	}
}
