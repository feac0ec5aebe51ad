// SPDX-License-Identifier: MIT

package ringtest_test

import (
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

var kept []byte

func TestAllocations(t *testing.T) {
	calls := 0
	if n := ringtest.Allocations(10, func() { kept = make([]byte, 64); calls++ }); n != 1 || calls < 5*10 {
		t.Errorf("got %v allocations, want one: the function makes one in each of %d calls", n, calls)
	}
	calls = 0
	once := func() {
		if calls++; calls <= 22 { // the first two counts: ten calls each, and one before
			kept = make([]byte, 64)
		}
	}
	if n := ringtest.Allocations(10, once); n != 0 {
		t.Errorf("got %v allocations, want 0: the function stops allocating", n)
	}
}
