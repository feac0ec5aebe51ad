// SPDX-License-Identifier: MIT

package epoll

import (
	"math"
	"testing"
	"time"
)

func TestMillis(t *testing.T) {
	for d, want := range map[time.Duration]int{
		1: 1, time.Millisecond: 1, time.Millisecond + 1: 2, time.Hour: 3600_000, math.MaxInt64: math.MaxInt32,
	} {
		if got := millis(d); got != want {
			t.Errorf("%v: %d ms, want %d", d, got, want)
		}
	}
}
