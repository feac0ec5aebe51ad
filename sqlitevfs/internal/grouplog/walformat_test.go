// SPDX-License-Identifier: MIT

package grouplog

import (
	"os"
	"testing"
)

// TestWalkOfFrames walks a WAL of two transactions frame by frame, and in pieces of every size. A frame that is
// damaged, of another life, or missing ends both.
func TestWalkOfFrames(t *testing.T) {
	w := newTestWAL(t, t.TempDir(), "db")
	w.append(2)
	w.append(1)
	whole, err := os.ReadFile(w.path)
	must(t, err)
	if _, err := ParseHeader(whole[:walHeaderSize-1]); err == nil {
		t.Error("a part of a header was taken for one")
	}

	// walk returns the number of frames, and of the transactions that they end.
	walk := func(p []byte) (frames, ends int) {
		h, err := ParseHeader(p)
		must(t, err)
		c := h.Begin()
		for c.End+int64(h.Frame()) <= int64(len(p)) {
			frame := p[c.End:][:h.Frame()]
			at := c.End
			page, size, ok := c.Next(frame)
			if !ok {
				if c.End != at {
					t.Error("the cursor moved behind a frame that does not continue")
				}
				break
			}
			frames++
			if page == 0 || (size != 0) != Ends(frame, testPage) {
				t.Errorf("frame %d: page %d, %d pages", frames, page, size)
			}
			if size != 0 {
				ends++
			}
		}
		return frames, ends
	}
	// add passes the WAL in pieces.
	add := func(p []byte, piece int) bool {
		var f Frames
		for ; len(p) > 0; p = p[min(piece, len(p)):] {
			if !f.Add(p[:min(piece, len(p))]) {
				return false
			}
		}
		return true
	}
	if frames, ends := walk(whole); frames != 3 || ends != 2 {
		t.Errorf("%d frames, %d transactions, want 3 and 2", frames, ends)
	}
	frame := int(w.parsed.frame())
	for _, piece := range []int{1, 7, walHeaderSize, frame, len(whole)} {
		if !add(whole, piece) {
			t.Errorf("a whole WAL in pieces of %d bytes does not continue", piece)
		}
	}
	for what, at := range map[string]int{"page": 0, "pages of the database": 7, "salt": 8, "checksum": 20, "content": frameHeaderSize + 100} {
		p := append([]byte(nil), whole...)
		p[walHeaderSize+frame+at] ^= 1 // of the second frame
		if frames, ends := walk(p); frames != 1 || ends != 0 {
			t.Errorf("%s changed: %d frames, %d transactions, want 1 and 0", what, frames, ends)
		}
		if add(p, 100) {
			t.Errorf("%s changed: the frames continue", what)
		}
	}
	for what, at := range map[string]int{"magic number": 0, "size of pages": 11, "salt": 16, "checksum": 24} {
		p := append([]byte(nil), whole...)
		p[at] ^= 2
		if _, err := ParseHeader(p); err == nil {
			t.Errorf("%s of the header changed: it is valid", what)
		}
		if add(p, len(p)) {
			t.Errorf("%s of the header changed: the frames continue", what)
		}
	}
}
