// SPDX-License-Identifier: MIT

package workload

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
	"testing"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/engine"
	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// memory has every optional method of an engine; randread_test.go has the others.
var (
	_ engine.Batcher = (*memory)(nil)
	_ engine.Writer  = (*memory)(nil)
	_ engine.Logger  = (*memoryLog)(nil)
)

func (m *memory) OpenBatch(_ string, _ bool, count, size int) (engine.Batch, error) {
	if m.openErr != nil {
		return nil, m.openErr
	}
	b := &memoryBatch{memory: m, buffers: make([][]byte, count)}
	for i := range b.buffers {
		b.buffers[i] = alignedBuffer(size)
	}
	return b, nil
}

// roundOver runs the job with an engine over size bytes until its reads or writes have covered each
// of blocks blocks, for twice as long each time: on a busy machine a short window ends after a few
// operations. It returns the engine and the sample of the last round, and the offsets.
func roundOver(t *testing.T, j Job, size, blocks int) (m *memory, s measure.Sample, seen map[int64]bool) {
	t.Helper()
	for ; ; j.Measure *= 2 {
		var err error
		m, seen = newMemory(size), map[int64]bool{}
		if s, err = j.RunWith(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		for _, off := range m.offsets {
			seen[off] = true
		}
		if len(seen) >= blocks {
			return m, s, seen
		}
		if j.Measure > 5*time.Second {
			t.Fatalf("%d of %d blocks in %d operations", len(seen), blocks, s.Ops)
		}
	}
}

type memoryBatch struct {
	*memory
	buffers [][]byte
}

func (b *memoryBatch) Buffer(i int) []byte { return b.buffers[i] }

func (b *memoryBatch) Read(offsets []int64) error {
	for i, off := range offsets {
		if n, err := b.ReadAt(b.buffers[i], off); n < len(b.buffers[i]) {
			return errors.Join(err, io.ErrUnexpectedEOF)
		}
	}
	return nil
}

func (m *memory) OpenWrite(string, bool) (engine.WriteFile, error) {
	if m.openErr != nil {
		return nil, m.openErr
	}
	return &memoryWriter{memory: m}, nil
}

// memoryWriter may lose writes or return an error for them.
type memoryWriter struct{ *memory }

func (w *memoryWriter) WriteAt(p []byte, off int64) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.offsets = append(w.offsets, off)
	switch {
	case w.writeErr != nil:
		return 0, w.writeErr
	case !w.lose:
		copy(w.data[off:], p)
	}
	return len(p), nil
}

func (w *memoryWriter) ReadAt(p []byte, off int64) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return copy(p, w.data[off:]), nil
}

func (w *memoryWriter) Sync() error { w.synced++; return nil }

func (w *memoryWriter) Datasync() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.datasynced++
	return w.syncErr
}

// memoryLog is an engine that keeps logs in memory. tamper changes each record; nil drops
// it.
type memoryLog struct {
	memory
	tamper func(n int, record []byte) []byte

	mu      sync.Mutex
	records [][]byte
	seen    int
	err     error
}

func (l *memoryLog) OpenLog(string) (engine.Log, error) { return l, l.openErr }

func (l *memoryLog) Append(record []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	kept := append([]byte(nil), record...)
	if l.tamper != nil {
		kept = l.tamper(l.seen, kept)
	}
	l.seen++
	if kept != nil {
		l.records = append(l.records, kept)
	}
	return nil
}

func (l *memoryLog) ReadLog(string) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for _, r := range l.records {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// plain is an engine that can only read.
type plain struct{}

func (plain) Name() string              { return "plain" }
func (plain) Backend() (string, string) { return "plain", "a test" }
func (plain) OpenRead(string, bool) (engine.File, error) {
	return nil, fmt.Errorf("nothing to read")
}
