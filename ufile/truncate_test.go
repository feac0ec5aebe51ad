// SPDX-License-Identifier: MIT

package ufile_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/ufile"
)

// truncatedTo is the size to which files are truncated.
const truncatedTo = 300_000

// TestTruncatedUnderReads truncates a file while it is read. Reads return its data up to
// the end; after the truncation they return only the end.
func TestTruncatedUnderReads(t *testing.T) {
	const size, cut, block = 1 << 20, truncatedTo, 16 << 10
	content := random(size)
	path := fileOf(t, content)
	for _, mode := range modes {
		for _, way := range []string{"hot", "cold", "direct"} {
			t.Run(fmt.Sprintf("%v,%s", mode, way), func(t *testing.T) {
				flag := os.O_RDONLY
				if way == "direct" {
					needDirect(t, path)
					flag |= sys.ODirect
				}
				s := newSystem(t, ufile.Options{Mode: mode})
				f := open(t, s, path, flag)
				for range ringtest.Rounds(3, 1) {
					if err := os.WriteFile(path, content, 0o600); err != nil {
						t.Fatal(err)
					}
					if way == "cold" {
						forgetCached(t, path)
					}
					var wg sync.WaitGroup
					started := make(chan struct{}, 8)
					for g := range 8 {
						wg.Go(func() { readThrough(t, s, f, g, content, block, started) })
					}
					for range 4 {
						<-started
					}
					if err := os.Truncate(path, cut); err != nil {
						t.Error(err)
					}
					wg.Wait()
					afterTheCut(t, s, f, content[:cut])
				}
			})
		}
	}
}

// cutOff reports whether p is the file's content from off on. Beyond the new size it may be
// zero: the kernel clears the rest of a page while it copies the page to a reader.
func cutOff(p, content []byte, off int64) bool {
	for i, b := range p {
		if b != content[i] && (b != 0 || off+int64(i) < truncatedTo) {
			return false
		}
	}
	return true
}

// readThrough reads a file from start to end in one of four ways, and signals when it has
// begun.
func readThrough(t *testing.T, s *ufile.System, f *ufile.File, way int, content []byte, block int, started chan<- struct{}) {
	tell := sync.OnceFunc(func() { started <- struct{}{} })
	defer tell()
	check := func(off int64, p []byte, n int, err error) bool {
		tell()
		rest := content[min(int(off), len(content)):]
		if n > len(rest) || !cutOff(p[:n], rest, off) || n < len(p) != (err == io.EOF) || err != nil && err != io.EOF {
			t.Errorf("way %d at %d: %d bytes, %v, or wrong data", way%4, off, n, err)
			return false
		}
		return err == nil
	}
	switch way % 4 {
	case 0:
		p := ufile.AlignedBuffer(block)
		for off := int64(0); ; off += int64(block) {
			if n, err := f.ReadAt(p, off); !check(off, p, n, err) {
				return
			}
		}
	case 1: // a range larger than one request to the page cache
		p := ufile.AlignedBuffer(512 << 10)
		for off := int64(0); ; off += int64(len(p)) {
			if n, err := f.ReadAt(p, off); !check(off, p, n, err) {
				return
			}
		}
	case 2:
		b, err := s.NewBatch(ufile.BatchOptions{Depth: 8, Buffers: 8, BufferSize: block})
		if err != nil {
			t.Error(err)
			return
		}
		defer b.Close()
		ranges := make([]ufile.Range, 16)
		for off := int64(0); off < int64(len(content)); off += int64(len(ranges) * block) {
			for i := range ranges {
				p := ufile.AlignedBuffer(block)
				if i < 8 {
					p = b.Buffer(i)
				}
				ranges[i] = ufile.Range{File: f, Off: off + int64(i*block), Buf: p}
			}
			_ = b.Read(ranges)
			for _, r := range ranges {
				check(r.Off, r.Buf, r.N, r.Err)
			}
		}
	case 3:
		r := ufile.NewReader(f, ufile.ReaderOptions{BlockSize: block})
		defer r.Close()
		p := make([]byte, block-100)
		for off := int64(0); ; {
			n, err := r.Read(p)
			tell()
			if err == io.EOF && n == 0 {
				return
			}
			if err != nil || n > len(content[off:]) || !cutOff(p[:n], content[off:], off) {
				t.Errorf("Reader at %d: %d, %v, or wrong data", off, n, err)
				return
			}
			off += int64(n)
		}
	}
}

// afterTheCut reads when the file certainly has its new size.
func afterTheCut(t *testing.T, s *ufile.System, f *ufile.File, content []byte) {
	t.Helper()
	p := ufile.AlignedBuffer(8192)
	b, err := s.NewBatch(ufile.BatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, off := range []int64{int64(len(content)) &^ 4095, (int64(len(content)) + 4095) &^ 4095, 900 << 10 &^ 4095} {
		rest := content[min(int(off), len(content)):]
		clear(p)
		if n, err := f.ReadAt(p, off); n != len(rest) || err != io.EOF || !bytes.Equal(p[:n], rest) {
			t.Errorf("after the cut: ReadAt at %d: %d, %v, want %d", off, n, err, len(rest))
		}
		clear(p)
		one := []ufile.Range{{File: f, Off: off, Buf: p}}
		if err := b.Read(one); one[0].N != len(rest) || err != io.EOF || !bytes.Equal(p[:one[0].N], rest) {
			t.Errorf("after the cut: Batch at %d: %d, %v, want %d", off, one[0].N, err, len(rest))
		}
		r := ufile.NewReader(f, ufile.ReaderOptions{Offset: off})
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, rest) {
			t.Errorf("after the cut: Reader at %d: %d bytes, %v, want %d", off, len(got), err, len(rest))
		}
		r.Close()
	}
}
