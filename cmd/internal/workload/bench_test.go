// SPDX-License-Identifier: MIT

package workload

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/engine"
	"github.com/ringside-io/ringside/cmd/internal/measure"
)

const (
	benchGoroutines = 128
	benchFileSize   = 16 << 20
)

// BenchmarkReadAt reads a file in the page cache with 128 goroutines.
func BenchmarkReadAt(b *testing.B) { benchmarkReadAt(b, false) }

// BenchmarkReadAtDirect reads a file with O_DIRECT with 128 goroutines.
func BenchmarkReadAtDirect(b *testing.B) { benchmarkReadAt(b, true) }

func benchmarkReadAt(b *testing.B, direct bool) {
	d, err := datafile.Create(b.Context(), b.TempDir(), benchFileSize, contentSeed, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := d.Remove(); err != nil {
			b.Error(err)
		}
	}()
	if direct && errors.Is(ProbeDirect(engine.OS{}, d.Path()), ErrNoDirect) {
		b.Skip("O_DIRECT: not on this file system")
	}
	for _, name := range []string{engine.NameOS, engine.NameRingside} {
		for _, block := range []int{4 << 10, 8 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20} {
			b.Run(fmt.Sprintf("%s_%d", name, block), func(b *testing.B) {
				benchmarkOne(b, name, d, block, direct)
			})
		}
	}
}

func benchmarkOne(b *testing.B, name string, d *datafile.File, block int, direct bool) {
	e, err := engine.Lookup(name)
	if err != nil {
		b.Fatal(err)
	}
	content := d.Seed()
	w := RandRead{Path: d.Path(), Span: d.Size(), Block: block, Direct: direct, Seed: 1, Content: &content}
	parallelism := max(benchGoroutines/runtime.GOMAXPROCS(0), 1)
	newOp, closeFile, err := w.Open(e, parallelism*runtime.GOMAXPROCS(0))
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := closeFile(); err != nil {
			b.Error(err)
		}
	}()
	// Buffers are made before the timer runs: one operation for each goroutine of
	// RunParallel.
	ops := make([]measure.Op, parallelism*runtime.GOMAXPROCS(0))
	for g := range ops {
		if ops[g], err = newOp(g); err != nil {
			b.Fatal(err)
		}
	}
	var next atomic.Int64
	b.SetBytes(int64(block))
	b.ReportAllocs()
	b.SetParallelism(parallelism)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		op := ops[next.Add(1)-1]
		for pb.Next() {
			if _, err := op(); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
