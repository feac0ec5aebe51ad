// SPDX-License-Identifier: MIT

package measure

import (
	"math/bits"
	"time"
)

// These are the parts of the index of a bucket: each power of two has histSteps buckets, so that a
// quantile is wrong by at most 0.8 %. Longer latencies than 2^histBits ns count as that long.
const (
	histShift = 6
	histSteps = 1 << histShift
	histBits  = 37
)

// Histogram counts latencies up to 137 s in logarithmic buckets. It is small, so that it takes little
// of the caches from the measured operation, and quick to merge, because a turn is short. Its zero
// value is empty.
type Histogram struct {
	counts [(histBits - histShift + 1) * histSteps]uint32
	total  uint64
}

// Record counts a latency. It does not allocate.
func (h *Histogram) Record(d time.Duration) {
	v := uint64(min(max(d, 0), 1<<histBits-1))
	i := v
	if shift := bits.Len64(v) - histShift - 1; shift > 0 {
		i = uint64(shift)<<histShift + v>>shift
	}
	h.counts[i]++
	h.total++
}

// Merge adds the counts of another histogram.
func (h *Histogram) Merge(other *Histogram) {
	for i, n := range other.counts {
		h.counts[i] += n
	}
	h.total += other.total
}

// Quantile returns the latency below which the share q of all latencies lies, or 0 without any.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.total == 0 {
		return 0
	}
	rank, seen := uint64(q*float64(h.total)), uint64(0)
	for i, n := range h.counts {
		if seen += uint64(n); seen > rank {
			return middle(i)
		}
	}
	return 1 << histBits
}

// middle returns the middle of a bucket.
func middle(i int) time.Duration {
	shift := i>>histShift - 1
	if shift <= 0 {
		return time.Duration(i)
	}
	low := uint64(i-shift<<histShift) << shift
	return time.Duration(low + 1<<shift/2)
}
