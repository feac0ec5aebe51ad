// SPDX-License-Identifier: MIT

package workload

import (
	"slices"
	"testing"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/engine"
)

func TestColdBlocksAreEachTakenOnce(t *testing.T) {
	const block, blocks = 8192, 1000
	c := newColdBlocks(5, block, blocks*block+4096)
	seen := map[int64]bool{}
	var order []int64
	for off, ok := c.take(); ok; off, ok = c.take() {
		if off%block != 0 || off < 0 || off >= blocks*block || seen[off] {
			t.Fatalf("offset %d", off)
		}
		seen[off] = true
		order = append(order, off)
	}
	if len(order) != blocks {
		t.Errorf("%d of %d blocks", len(order), blocks)
	}
	if slices.IsSorted(order) {
		t.Error("the order is not random")
	}
	follows := 0
	for i := range order[1:] {
		if order[i+1] == order[i]+block {
			follows++
		}
	}
	if follows > blocks/50 {
		t.Errorf("%d of %d blocks follow their neighbour", follows, blocks)
	}
	if slices.Equal(c.order, newColdBlocks(6, block, blocks*block).order) || !slices.Equal(c.order, newColdBlocks(5, block, blocks*block).order) {
		t.Error("two seeds gave the same order")
	}
}

// TestColdReads reads a real file with every engine. The window ends at the end of the
// file.
func TestColdReads(t *testing.T) {
	d, err := datafile.Create(t.Context(), t.TempDir(), 4<<20, contentSeed, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Remove(); err != nil {
			t.Error(err)
		}
	}()
	for _, name := range []string{engine.NameOS, engine.NameRingside} {
		j := job(d.Size(), 2*datafile.UnitSize, 4)
		j.Engine, j.Measure = name, time.Hour
		of[RandRead](j).Path, of[RandRead](j).Cold = d.Path(), true
		s, err := j.Run(t.Context())
		if blocks := d.Size() / (2 * datafile.UnitSize); err != nil || s.Ops != blocks || s.Bytes != d.Size() {
			t.Errorf("%s: %+v, %v; want %d reads", name, s, err, blocks)
		}
		if accountsReads(t, d.Path()) && (s.DeviceReads < s.Bytes || s.DeviceReads > s.Bytes+s.Bytes/20) {
			t.Errorf("%s read %d bytes, %d from the device", name, s.Bytes, s.DeviceReads)
		}
	}
}

func TestColdJobErrors(t *testing.T) {
	m := newMemory(4 * datafile.UnitSize)
	direct := job(int64(len(m.data)), datafile.UnitSize, 1)
	of[RandRead](direct).Cold, of[RandRead](direct).Direct = true, true
	unaligned := job(int64(len(m.data)), 1000, 1)
	of[RandRead](unaligned).Cold = true
	missing := job(int64(len(m.data)), datafile.UnitSize, 1)
	of[RandRead](missing).Cold, of[RandRead](missing).Path = true, "/does/not/exist"
	for name, j := range map[string]Job{"with O_DIRECT": direct, "not aligned": unaligned, "no file": missing} {
		if _, err := j.RunWith(t.Context(), m); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
