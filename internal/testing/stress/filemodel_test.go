// SPDX-License-Identifier: MIT

package stress

import (
	"slices"
	"strings"
	"testing"
)

// of returns the data of a write.
func of(c *FileModel, stamp uint64, first, n int) []byte {
	p := make([]byte, n*Block)
	c.Fill(p, stamp, first)
	return p
}

func TestFileModel(t *testing.T) {
	c := NewFileModel(1, 8)
	expect := func(what string, begin uint64, p []byte, legal bool) {
		t.Helper()
		if err := c.judgeRead(begin, 2, p); (err == nil) != legal {
			t.Errorf("%s: %v", what, err)
		}
	}
	zeros := make([]byte, 2*Block)
	early := c.BeginRead()
	expect("nothing was written", early, zeros, true)
	a := c.BeginWrite(2, 2)
	expect("the write may have been done", early, of(c, a, 2, 2), true)
	c.EndWrite(a, 2, 2, 2, 0)
	expect("a read from before it", early, zeros, true)
	c.forget(early)
	late := c.BeginRead()
	expect("a read from after it", late, zeros, false)
	expect("the write", late, of(c, a, 2, 2), true)
	expect("the same for other blocks", late, of(c, a, 3, 2), false)

	b := c.BeginWrite(2, 2)
	c.EndWrite(b, 2, 2, 0, 2)
	expect("a failed write", late, of(c, b, 2, 2), true)
	expect("before the failed one", late, of(c, a, 2, 2), true)
	mixed := slices.Concat(of(c, b, 2, 1)[:10], of(c, a, 2, 1)[10:])
	expect("parts of both", late, mixed, true)
	mixed[20]++
	expect("a byte of neither", late, mixed, false)

	d := c.BeginWrite(2, 2)
	c.EndWrite(d, 2, 2, 1, 0)
	c.forget(late)
	last := c.BeginRead()
	expect("after a short write", last, slices.Concat(of(c, d, 2, 1), of(c, b, 3, 1)), true)
	expect("the block that it did not reach", last, of(c, d, 2, 2), false)
	expect("what it replaced", last, of(c, a, 2, 2), false)
	if err := c.EndRead(last, 7, zeros); err == nil || !strings.Contains(err.Error(), "behind the end") {
		t.Errorf("behind the end: %v", err)
	}
}

// TestFileModelForgets writes often: writes that no read can see any more take no memory.
func TestFileModelForgets(t *testing.T) {
	c := NewFileModel(1, 1)
	old := c.BeginRead()
	for range 100 {
		s := c.BeginWrite(0, 1)
		c.EndWrite(s, 0, 1, 1, 0)
	}
	if n := len(c.blocks[0]); n < 100 {
		t.Errorf("the model has %d writes, want all that a read may see", n)
	}
	c.forget(old)
	for range 100 {
		s := c.BeginWrite(0, 1)
		c.EndWrite(s, 0, 1, 1, 0)
	}
	if n := len(c.blocks[0]); n > 10 {
		t.Errorf("the model has %d writes, want 1", n)
	}
}
