// SPDX-License-Identifier: MIT

package workload

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/engine"
	"github.com/ringside-io/ringside/ufile"
)

const contentSeed = 77

// memory is an engine over bytes in memory. It records the offsets of reads and may corrupt the
// data.
type memory struct {
	data    []byte
	openErr error
	tamper  func(p []byte, off int64, n int, err error) (int, error)
	// lose, writeErr and syncErr are for writes.
	lose     bool
	writeErr error
	syncErr  error

	mu         sync.Mutex
	offsets    []int64
	opened     int
	closed     int
	synced     int
	datasynced int
}

func newMemory(size int) *memory {
	m := &memory{data: make([]byte, size)}
	datafile.Fill(m.data, contentSeed, 0)
	return m
}

func (*memory) Name() string { return "memory" }

func (*memory) Backend() (string, string) { return "memory", "a test" }

func (m *memory) OpenRead(string, bool) (engine.File, error) {
	if m.openErr != nil {
		return nil, m.openErr
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.opened++
	return m, nil
}

func (m *memory) ReadAt(p []byte, off int64) (int, error) {
	m.mu.Lock()
	m.offsets = append(m.offsets, off)
	m.mu.Unlock()
	n, err := bytes.NewReader(m.data).ReadAt(p, off)
	if m.tamper != nil {
		return m.tamper(p, off, n, err)
	}
	return n, err
}

func (m *memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed++
	return nil
}

func job(span int64, block, goroutines int) Job {
	content := uint64(contentSeed)
	return Job{
		Suite: "file", Workload: "randread", Engine: "memory", Goroutines: goroutines,
		Warm: time.Millisecond, Measure: 10 * time.Millisecond,
		Work: &RandRead{Span: span, Block: block, Seed: 3, Content: &content},
	}
}

func TestRandReadReadsAlignedBlocksOfTheSpan(t *testing.T) {
	const span, block = 40 * datafile.UnitSize, 4 * datafile.UnitSize
	m, s, seen := roundOver(t, job(span+datafile.UnitSize, block, 3), 64*datafile.UnitSize, span/block)
	if s.Ops == 0 || s.Bytes != s.Ops*block {
		t.Errorf("sample %+v", s)
	}
	for off := range seen {
		if off%block != 0 || off < 0 || off+block > span {
			t.Fatalf("read at offset %d", off)
		}
	}
	if len(seen) != span/block {
		t.Errorf("%d of %d blocks were read in %d reads", len(seen), span/block, len(m.offsets))
	}
	if m.closed != 1 {
		t.Errorf("closed %d times", m.closed)
	}
}

// offsetsOf makes n reads in one goroutine and returns their offsets.
func offsetsOf(t *testing.T, seed uint64, goroutine, n int) []int64 {
	t.Helper()
	m := newMemory(256 * datafile.UnitSize)
	newOp, _, err := RandRead{Span: int64(len(m.data)), Block: datafile.UnitSize, Seed: seed}.Open(m, 1)
	if err != nil {
		t.Fatal(err)
	}
	op, err := newOp(goroutine)
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		if _, err := op(); err != nil {
			t.Fatal(err)
		}
	}
	return m.offsets
}

func TestSeedSelectsTheOffsets(t *testing.T) {
	first := offsetsOf(t, 1, 0, 50)
	if !slices.Equal(first, offsetsOf(t, 1, 0, 50)) {
		t.Error("one seed gave two sequences")
	}
	if slices.Equal(first, offsetsOf(t, 2, 0, 50)) || slices.Equal(first, offsetsOf(t, 1, 1, 50)) {
		t.Error("different seeds or goroutines gave one sequence")
	}
}

func TestWrongContentIsAHardFailure(t *testing.T) {
	const block = 2 * datafile.UnitSize
	for name, tamper := range map[string]func(p []byte, off int64, n int, err error) (int, error){
		"another block": func(p []byte, off int64, n int, err error) (int, error) {
			datafile.Fill(p, contentSeed, off+block)
			return n, err
		},
		"buffer untouched": func(p []byte, _ int64, n int, err error) (int, error) {
			clear(p)
			return n, err
		},
		"damaged byte": func(p []byte, _ int64, n int, err error) (int, error) {
			p[1000] ^= 1
			return n, err
		},
		"short read": func(_ []byte, _ int64, n int, _ error) (int, error) { return n - 1, nil },
		"early end":  func(_ []byte, _ int64, _ int, _ error) (int, error) { return 0, io.EOF },
	} {
		m := newMemory(16 * block)
		m.tamper = tamper
		_, err := job(int64(len(m.data)), block, 2).RunWith(t.Context(), m)
		var mismatch *datafile.MismatchError
		if !errors.As(err, &mismatch) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %v", name, err)
		}
		if m.closed != 1 {
			t.Errorf("%s: closed %d times", name, m.closed)
		}
	}
}

func TestForeignContentIsNotVerified(t *testing.T) {
	m := newMemory(16 * datafile.UnitSize)
	clear(m.data)
	j := job(int64(len(m.data)), datafile.UnitSize, 1)
	of[RandRead](j).Content = nil
	if _, err := j.RunWith(t.Context(), m); err != nil {
		t.Error(err)
	}
}

func TestJobErrors(t *testing.T) {
	m := newMemory(4 * datafile.UnitSize)
	for name, j := range map[string]Job{
		"block not aligned":     job(int64(len(m.data)), 1000, 1),
		"block larger than all": job(datafile.UnitSize, 2*datafile.UnitSize, 1),
		"no block":              job(int64(len(m.data)), 0, 1),
		"no goroutine":          job(int64(len(m.data)), datafile.UnitSize, 0),
	} {
		if _, err := j.RunWith(t.Context(), m); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := (Job{Suite: "file", Workload: "dance", Engine: engine.NameOS}).Run(t.Context()); err == nil {
		t.Error("unknown workload: no error")
	}
	if _, err := (Job{Engine: "steam"}).Run(t.Context()); !errors.Is(err, engine.ErrUnknown) {
		t.Errorf("unknown engine: %v", err)
	}
	if s, err := (Job{Engine: engine.NameOS}).Run(t.Context()); err != nil || s.Backend != "plain" || s.Ops != 0 {
		t.Errorf("request for the backend: %+v, %v", s, err)
	}
}

func TestAlignedBuffer(t *testing.T) {
	for _, size := range []int{4096, 8192, 65536, 1 << 20} {
		b := alignedBuffer(size)
		if len(b) != size || cap(b) != size || reflect.ValueOf(b).Pointer()%bufferAlign != 0 {
			t.Errorf("size %d: len %d, cap %d, address %#x", size, len(b), cap(b), reflect.ValueOf(b).Pointer())
		}
	}
}

func TestProbeDirect(t *testing.T) {
	m := newMemory(datafile.UnitSize)
	if err := ProbeDirect(m, ""); err != nil {
		t.Error(err)
	}
	m.openErr = &os.PathError{Op: "open", Err: errors.ErrUnsupported}
	if err := ProbeDirect(m, ""); !errors.Is(err, ErrNoDirect) {
		t.Errorf("system without O_DIRECT: %v", err)
	}
	m.openErr = os.ErrPermission
	if err := ProbeDirect(m, ""); errors.Is(err, ErrNoDirect) || !errors.Is(err, os.ErrPermission) {
		t.Errorf("forbidden file: %v", err)
	}
	m.openErr, m.tamper = nil, func([]byte, int64, int, error) (int, error) { return 0, io.ErrClosedPipe }
	if err := ProbeDirect(m, ""); errors.Is(err, ErrNoDirect) || err == nil {
		t.Errorf("broken device: %v", err)
	}
}

// TestEngines reads a real file with every engine, verified.
func TestEngines(t *testing.T) {
	d, err := datafile.Create(t.Context(), t.TempDir(), 1<<20, contentSeed, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Remove(); err != nil {
			t.Error(err)
		}
	}()
	for _, name := range []string{engine.NameOS, engine.NameRingside} {
		for _, direct := range []bool{false, true} {
			if direct && errors.Is(ProbeDirect(engine.OS{}, d.Path()), ErrNoDirect) {
				t.Log("O_DIRECT: not on this file system")
				continue
			}
			j := job(d.Size(), 2*datafile.UnitSize, 4)
			j.Engine, of[RandRead](j).Path, of[RandRead](j).Direct = name, d.Path(), direct
			s, err := j.Run(t.Context())
			if err != nil || s.Ops == 0 || s.Backend == "" || s.Reason == "" {
				t.Errorf("%s, direct %v: %+v, %v", name, direct, s, err)
			}
		}
		j := job(d.Size(), datafile.UnitSize, 1)
		j.Engine, of[RandRead](j).Path = name, filepath.Join(t.TempDir(), "missing")
		if _, err := j.Run(t.Context()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s, missing file: %v", name, err)
		}
	}
}

// TestRandReadIntoBuffers reads with the memory of a pool.
func TestRandReadIntoBuffers(t *testing.T) {
	d := realFile(t)
	content := d.Seed()
	for _, direct := range directness(t, d.Path()) {
		w := &RandRead{Path: d.Path(), Span: d.Size(), Block: 4096, Direct: direct, Seed: 1, Content: &content}
		j := Job{Suite: "file", Engine: engine.NameBuffers, Goroutines: 16, Measure: time.Millisecond, Work: w}
		before := ufile.Total().Fixed
		s, err := j.Run(t.Context())
		if err != nil || s.Ops == 0 {
			t.Errorf("direct %v: %+v, %v", direct, s, err)
		}
		fixed := ufile.Total().Fixed - before
		t.Logf("direct %v: %d operations with registered memory", direct, fixed)
		if fixed > 0 && !direct {
			t.Error("buffered reads use registered memory")
		}
	}
}
