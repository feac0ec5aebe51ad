// SPDX-License-Identifier: MIT

package uring_test

import (
	"strconv"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

// BenchmarkNop measures the overhead of the ring: the time of one NOP, with submission in
// batches and reaping.
func BenchmarkNop(b *testing.B) {
	for _, batch := range []int{1, 16, 128} {
		b.Run(strconv.Itoa(batch), func(b *testing.B) {
			r := ringtest.Open(b, &uring.Options{Entries: 128})
			dst := make([]uring.CQE, batch)
			b.ReportAllocs()
			b.ResetTimer()
			for left := b.N; left > 0; left -= batch {
				for range batch {
					r.SQE().Nop()
				}
				n, err := r.SubmitNoWait()
				if err != nil {
					b.Fatal(err)
				}
				if got := r.Reap(dst); got != n {
					b.Fatalf("got %d completions, want %d", got, n)
				}
			}
		})
	}
}
