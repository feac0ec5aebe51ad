// SPDX-License-Identifier: MIT

//go:build unix

package ufile_test

import (
	"os"
	"testing"

	"github.com/ringside-io/ringside/ufile"
)

// BenchmarkMappedHot measures what Slice costs when the page is resident.
func BenchmarkMappedHot(b *testing.B) {
	_, m := mapFile(b, newSystem(b, ufile.Options{}), fileOf(b, random(1<<20)), os.O_RDONLY)
	var sum byte
	off := int64(0)
	for b.Loop() {
		p, err := m.Slice(off&(1<<20-1), 1)
		if err != nil {
			b.Fatal(err)
		}
		sum += p[0]
		off += 4096
	}
	_ = sum
}
