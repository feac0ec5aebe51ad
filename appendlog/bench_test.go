// SPDX-License-Identifier: MIT

package appendlog

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

const benchRecord = 128

// BenchmarkAppend measures durable appends of 128 bytes by 1 and 64 goroutines. "os" is a
// program with os.File: each goroutine writes to a file opened with O_APPEND and syncs it,
// by fdatasync where the system has it.
func BenchmarkAppend(b *testing.B) {
	record := make([]byte, benchRecord)
	for i := range record {
		record[i] = byte(i)
	}
	for _, n := range []int{1, 64} {
		b.Run(fmt.Sprintf("os/%d", n), func(b *testing.B) {
			f, err := os.OpenFile(filepath.Join(b.TempDir(), "log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			d := &dirFile{File: f, fd: int(f.Fd())}
			benchAppends(b, n, func() error {
				if _, err := f.Write(record); err != nil {
					return err
				}
				return d.Sync(false)
			})
		})
	}
	for _, n := range []int{1, 64} {
		b.Run(fmt.Sprintf("ringside/%d", n), func(b *testing.B) {
			a, err := Open(b.TempDir(), Options{})
			if err != nil {
				b.Fatal(err)
			}
			benchAppends(b, n, func() error {
				_, err := a.Append(record)
				return err
			})
			st := a.Stats()
			b.ReportMetric(float64(st.Records)/float64(max(st.Groups, 1)), "records/group")
			if err := a.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// benchAppends runs b.N appends in n goroutines.
func benchAppends(b *testing.B, n int, appendOne func() error) {
	b.ReportAllocs()
	b.SetBytes(benchRecord)
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	b.ResetTimer()
	for range n {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := appendOne(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
}
