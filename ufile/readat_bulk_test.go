// SPDX-License-Identifier: MIT

package ufile_test

import (
	"bytes"
	"os"
	"sync"
	"testing"

	"github.com/ringside-io/ringside/ufile"
)

// TestLargeColdReadsOfFewGoroutines reads large blocks that are not cached, by
// plain calls while few are in flight.
func TestLargeColdReadsOfFewGoroutines(t *testing.T) {
	const block, goroutines, each = 64 << 10, 12, 8
	content := random(block * goroutines * each)
	path := fileOf(t, content)
	forgetCached(t, path)
	f := open(t, newSystem(t, ufile.Options{}), path, os.O_RDONLY)
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			p := make([]byte, block)
			for i := range each {
				off := (i*goroutines + g) * block
				if n, err := f.ReadAt(p, int64(off)); n != block || err != nil || !bytes.Equal(p, content[off:][:block]) {
					t.Errorf("at %d: %d, %v, or not the file's data", off, n, err)
				}
			}
		})
	}
	wg.Wait()
	// What is left of a block that the kernel had read ahead in part is not large.
	if got := f.Stats(); got.Ring > got.Cached || got.Cached+got.Plain < goroutines*each {
		t.Errorf("%+v", got)
	}
}
