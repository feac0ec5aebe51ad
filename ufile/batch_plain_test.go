// SPDX-License-Identifier: MIT

package ufile_test

import (
	"bytes"
	"io"
	"os"
	"testing"

	"github.com/ringside-io/ringside/internal/ringtest"
	"github.com/ringside-io/ringside/ufile"
)

// TestBatchOfLargeCachedBlocks reads much from the page cache, which all
// processors copy, the end of the file and a closed file among it.
func TestBatchOfLargeCachedBlocks(t *testing.T) {
	const block, blocks = 64 << 10, 32
	content := random(block*blocks - 1000)
	path := fileOf(t, content)
	overBatches(t, func(t *testing.T, s *ufile.System) {
		f := open(t, s, path, os.O_RDONLY)
		b, err := s.NewBatch(ufile.BatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		ranges := make([]ufile.Range, blocks)
		for i := range ranges {
			ranges[i] = ufile.Range{File: f, Off: int64(i * block), Buf: make([]byte, block)}
		}
		if n := ringtest.Allocations(20, func() {
			if err := b.Read(ranges); err != io.EOF {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%v allocations", n)
		}
		for i, r := range ranges {
			want := content[i*block : min((i+1)*block, len(content))]
			if r.N != len(want) || (r.N < block) != (r.Err == io.EOF) || r.Err != nil && r.Err != io.EOF || !bytes.Equal(r.Buf[:r.N], want) {
				t.Errorf("range %d: %d, %v, or not the file's data", i, r.N, r.Err)
			}
		}
		closed := open(t, s, path, os.O_RDONLY)
		closed.Close()
		ranges[7].File, ranges[8].File = closed, nil
		_ = b.Read(ranges)
		for i, r := range ranges[:blocks-1] {
			if bad := i == 7 || i == 8; bad != (r.Err != nil) || bad != (r.N == 0) {
				t.Errorf("range %d beside a closed file: %d, %v", i, r.N, r.Err)
			}
		}
	})
}
