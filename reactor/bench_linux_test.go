// SPDX-License-Identifier: MIT

package reactor

import (
	"os"
	"sync/atomic"
	"testing"

	"github.com/ringside-io/ringside/uring"
)

// benchFile returns a file of 1 MiB whose pages are cached.
func benchFile(b *testing.B) *os.File {
	f, _ := pattern(b, 1<<20)
	return f
}

// BenchmarkDo reads 4 KiB per operation, one operation at a time.
func BenchmarkDo(b *testing.B) {
	r, f := open(b, Options{Loops: 1}), benchFile(b)
	p := make([]byte, 4096)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		op := Op{Buf: p, Keep: f, Bytes: len(p)}
		op.SQE.Read(uring.Fd(int(f.Fd())), p, int64(i%256)*4096)
		if res := r.Do(&op); res.Res != 4096 {
			b.Fatal(res)
		}
	}
}

// BenchmarkDoTogether reads 4 KiB per operation from 128 goroutines per P.
func BenchmarkDoTogether(b *testing.B) {
	r, f := open(b, Options{}), benchFile(b)
	fd := int(f.Fd())
	b.SetParallelism(128)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		p := make([]byte, 4096)
		for i := 0; pb.Next(); i++ {
			op := Op{Buf: p, Keep: f, Bytes: len(p)}
			op.SQE.Read(uring.Fd(fd), p, int64(i%256)*4096)
			if res := r.Do(&op); res.Res != 4096 {
				b.Error(res)
				return
			}
		}
	})
}

// BenchmarkQueue keeps 64 NOPs in flight; the callback of each starts the next.
func BenchmarkQueue(b *testing.B) {
	r := open(b, Options{Loops: 1})
	var op Op
	op.SQE.Nop()
	var left atomic.Int64
	left.Store(int64(b.N))
	done := make(chan struct{})
	var ended atomic.Int64
	var fn func(Result)
	fn = func(Result) {
		if left.Add(-1) >= 0 {
			if _, err := r.Queue(&op, fn); err != nil {
				b.Error(err)
			}
		}
		if ended.Add(1) == int64(b.N) {
			close(done)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	for range min(64, b.N) {
		left.Add(-1)
		if _, err := r.Queue(&op, fn); err != nil {
			b.Fatal(err)
		}
	}
	<-done
}
