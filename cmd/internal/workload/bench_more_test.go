// SPDX-License-Identifier: MIT

package workload

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/engine"
	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// benchFile makes the file that a benchmark uses.
func benchFile(b *testing.B) *datafile.File {
	b.Helper()
	d, err := datafile.Create(b.Context(), b.TempDir(), benchFileSize, contentSeed, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := d.Remove(); err != nil {
			b.Error(err)
		}
	})
	return d
}

func benchEngine(b *testing.B, name string) engine.Engine {
	b.Helper()
	e, err := engine.Lookup(name)
	if err != nil {
		b.Fatal(err)
	}
	return e
}

// runOps performs b.N operations, with one goroutine per Op. Everything is prepared before the
// timer runs.
func runOps(b *testing.B, ops []measure.Op) {
	b.Helper()
	b.ReportAllocs()
	var left atomic.Int64
	left.Store(int64(b.N))
	var group sync.WaitGroup
	b.ResetTimer()
	for _, op := range ops {
		group.Go(func() {
			for left.Add(-1) >= 0 {
				if _, err := op(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	b.StopTimer()
}

func makeOps(b *testing.B, goroutines int, newOp func(int) (measure.Op, error)) []measure.Op {
	b.Helper()
	ops := make([]measure.Op, goroutines)
	for g := range ops {
		var err error
		if ops[g], err = newOp(g); err != nil {
			b.Fatal(err)
		}
	}
	return ops
}

// needDirect skips the test where the file cannot be opened with O_DIRECT.
func needDirect(b *testing.B, path string) {
	b.Helper()
	if errors.Is(ProbeDirect(engine.OS{}, path), ErrNoDirect) {
		b.Skip("O_DIRECT: not on this file system")
	}
}

// BenchmarkBatch reads 128 blocks by one call of one goroutine. An operation is a call.
func BenchmarkBatch(b *testing.B) {
	d := benchFile(b)
	content := d.Seed()
	for _, name := range []string{engine.NameOS, engine.NameRingside} {
		for _, direct := range directness(b, d.Path()) {
			b.Run(fmt.Sprintf("%s/direct=%v", name, direct), func(b *testing.B) {
				w := Batch{
					RandRead: RandRead{Path: d.Path(), Span: d.Size(), Block: 4096, Direct: direct, Seed: 1, Content: &content},
					Count:    128,
				}
				op, closeFile, err := w.Open(benchEngine(b, name))
				if err != nil {
					b.Fatal(err)
				}
				b.SetBytes(int64(w.Count * w.Block))
				runOps(b, []measure.Op{op})
				if err := closeFile(); err != nil {
					b.Error(err)
				}
			})
		}
	}
}

// BenchmarkAppend appends durable records of 128 bytes, and then checks that the log has
// them.
func BenchmarkAppend(b *testing.B) {
	for _, name := range []string{engine.NameOS, engine.NameOSMutex, engine.NameRingside} {
		for _, goroutines := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/goroutines=%d", name, goroutines), func(b *testing.B) {
				a, err := Append{Dir: b.TempDir(), Record: 128, Seed: 1}.Open(benchEngine(b, name))
				if err != nil {
					b.Fatal(err)
				}
				b.SetBytes(128)
				runOps(b, makeOps(b, goroutines, a.newOp))
				if err := a.finish(nil); err != nil {
					b.Error(err)
				}
			})
		}
	}
}

// BenchmarkRandWrite overwrites blocks with 32 goroutines, and then reads the last blocks.
func BenchmarkRandWrite(b *testing.B) {
	d := benchFile(b)
	stamp := uint64(0)
	for _, name := range []string{engine.NameOS, engine.NameRingside} {
		for _, direct := range directness(b, d.Path()) {
			b.Run(fmt.Sprintf("%s/direct=%v", name, direct), func(b *testing.B) {
				stamp++
				w := RandWrite{Path: d.Path(), Span: d.Size(), Block: 4096, Direct: direct, Seed: 1, Stamp: stamp}
				o, err := w.Open(benchEngine(b, name))
				if err != nil {
					b.Fatal(err)
				}
				b.SetBytes(int64(w.Block))
				runOps(b, makeOps(b, 32, o.newOp))
				if err := o.finish(nil); err != nil {
					b.Error(err)
				}
			})
		}
	}
}

// BenchmarkOpen opens a file, reads a block and closes the file, with one goroutine.
func BenchmarkOpen(b *testing.B) {
	d := benchFile(b)
	content := d.Seed()
	for _, name := range []string{engine.NameOS, engine.NameRingside} {
		for _, direct := range directness(b, d.Path()) {
			b.Run(fmt.Sprintf("%s/direct=%v", name, direct), func(b *testing.B) {
				w := Open{RandRead{Path: d.Path(), Span: d.Size(), Block: 4096, Direct: direct, Seed: 1, Content: &content}}
				runOps(b, []measure.Op{w.newOp(benchEngine(b, name), 0)})
			})
		}
	}
}

// BenchmarkBurner reads with O_DIRECT in 32 goroutines while another computes. The rate of
// computation is units/s.
func BenchmarkBurner(b *testing.B) {
	d := benchFile(b)
	needDirect(b, d.Path())
	content := d.Seed()
	for _, name := range []string{engine.NameOS, engine.NameRingside} {
		for _, computing := range []int{1, runtime.GOMAXPROCS(0)} {
			b.Run(fmt.Sprintf("%s/computing=%d", name, computing), func(b *testing.B) {
				w := RandRead{Path: d.Path(), Span: d.Size(), Block: 4096, Direct: true, Seed: 1, Content: &content}
				newOp, closeFile, err := w.Open(benchEngine(b, name), 32)
				if err != nil {
					b.Fatal(err)
				}
				ops := makeOps(b, 32, newOp)
				b.SetBytes(int64(w.Block))
				units := beside(b, computing, func() { runOps(b, ops) })
				b.ReportMetric(float64(units)/b.Elapsed().Seconds(), "units/s")
				if err := closeFile(); err != nil {
					b.Error(err)
				}
			})
		}
	}
}

// beside runs f while goroutines compute, and returns how many units of work they did.
func beside(b *testing.B, goroutines int, f func()) int64 {
	b.Helper()
	var units atomic.Int64
	var stop atomic.Bool
	var group sync.WaitGroup
	for g := range goroutines {
		compute := burner(uint64(g))
		group.Go(func() {
			for !stop.Load() {
				if _, err := compute(); err != nil {
					b.Error(err)
					return
				}
				units.Add(1)
			}
		})
	}
	f()
	stop.Store(true)
	group.Wait()
	return units.Load()
}
