// SPDX-License-Identifier: MIT

package workload

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/engine"
)

func openJob(span int64, block, goroutines int) Job {
	content := uint64(contentSeed)
	return Job{
		Suite: "file", Workload: "open", Goroutines: goroutines, Warm: time.Millisecond, Measure: 10 * time.Millisecond,
		Work: &Open{RandRead{Span: span, Block: block, Seed: 6, Content: &content}},
	}
}

// TestOpenReadsOncePerFile checks that each file that is opened is read once, or not at all, and
// closed.
func TestOpenReadsOncePerFile(t *testing.T) {
	const span = 40 * datafile.UnitSize
	for _, block := range []int{0, 4 * datafile.UnitSize} {
		blocks := 0
		if block > 0 {
			blocks = span / block
		}
		m, s, seen := roundOver(t, openJob(span, block, 3), span, blocks)
		if s.Ops == 0 || s.Bytes != s.Ops*int64(block) {
			t.Fatalf("blocks of %d: %+v", block, s)
		}
		reads := 0
		if block > 0 {
			reads = m.opened
		}
		if int64(m.opened) < s.Ops || m.closed != m.opened || len(m.offsets) != reads {
			t.Errorf("blocks of %d: opened %d times, closed %d times, %d reads of %d", block, m.opened, m.closed, len(m.offsets), reads)
		}
		for off := range seen {
			if off%int64(block) != 0 || off < 0 || off+int64(block) > span {
				t.Fatalf("read at offset %d", off)
			}
		}
		if len(seen) != blocks {
			t.Errorf("%d of %d blocks were read", len(seen), blocks)
		}
	}
}

func TestOpenErrors(t *testing.T) {
	m := newMemory(8 * datafile.UnitSize)
	size := int64(len(m.data))
	for name, j := range map[string]Job{
		"block not aligned":     openJob(size, 1000, 1),
		"block larger than all": openJob(datafile.UnitSize, 2*datafile.UnitSize, 1),
		"negative block":        openJob(size, -datafile.UnitSize, 1),
		"no goroutine":          openJob(size, 0, 0),
	} {
		if _, err := j.RunWith(t.Context(), m); err == nil || m.opened != 0 {
			t.Errorf("%s: %v, opened %d times", name, err, m.opened)
		}
	}
	good := openJob(size, datafile.UnitSize, 2)
	m.tamper = func(p []byte, _ int64, n int, err error) (int, error) {
		clear(p)
		return n, err
	}
	_, err := good.RunWith(t.Context(), m)
	if _, ok := errors.AsType[*datafile.MismatchError](err); !ok || m.opened == 0 || m.closed != m.opened {
		t.Errorf("wrong content: %v, opened %d times, closed %d times", err, m.opened, m.closed)
	}
	m.openErr = os.ErrPermission
	if _, err := good.RunWith(t.Context(), m); !errors.Is(err, os.ErrPermission) || m.closed != m.opened {
		t.Errorf("forbidden file: %v, opened %d times, closed %d times", err, m.opened, m.closed)
	}
}

// TestOpenEngines opens a real file with every engine.
func TestOpenEngines(t *testing.T) {
	d := realFile(t)
	for _, name := range []string{engine.NameOS, engine.NameRingside} {
		for _, block := range []int{0, 2 * datafile.UnitSize} {
			for _, direct := range directness(t, d.Path()) {
				j := openJob(d.Size(), block, 4)
				j.Engine, of[Open](j).Path, of[Open](j).Direct = name, d.Path(), direct
				s, err := j.Run(t.Context())
				if err != nil || s.Ops == 0 || s.Bytes != s.Ops*int64(block) || s.Backend == "" {
					t.Errorf("%s, blocks of %d, direct %v: %+v, %v", name, block, direct, s, err)
				}
			}
		}
		j := openJob(d.Size(), 0, 1)
		j.Engine, of[Open](j).Path = name, filepath.Join(t.TempDir(), "missing")
		if _, err := j.Run(t.Context()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s, missing file: %v", name, err)
		}
	}
}
