// SPDX-License-Identifier: MIT

package ufile_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/ufile"
)

// overReaders runs test in all modes, with a page cache and without.
func overReaders(t *testing.T, path string, test func(t *testing.T, f *ufile.File)) {
	t.Helper()
	overModes(t, func(t *testing.T, s *ufile.System) {
		t.Run("buffered", func(t *testing.T) { test(t, open(t, s, path, os.O_RDWR)) })
		t.Run("direct", func(t *testing.T) {
			needDirect(t, path)
			test(t, open(t, s, path, os.O_RDWR|sys.ODirect))
		})
	})
}

// newReader returns a reader; the end of the test closes it.
func newReader(t testing.TB, f *ufile.File, o ufile.ReaderOptions) *ufile.Reader {
	t.Helper()
	r := ufile.NewReader(f, o)
	t.Cleanup(func() { r.Close() }) // some tests have closed the reader
	return r
}

func TestReaderReadsAllOfEverySize(t *testing.T) {
	const block = 8192
	sizes := []int{0, 4097, 3 * block, 30_001, 3*block - 1, 1, 4095, 4096}
	for _, size := range sizes[:ringtest.Rounds(8, 4)] {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			content := random(size)
			overReaders(t, fileOf(t, content), func(t *testing.T, f *ufile.File) {
				for _, o := range []ufile.ReaderOptions{{}, {BlockSize: block, Blocks: 1}, {BlockSize: block - 1, Blocks: 3}} {
					if err := iotest.TestReader(newReader(t, f, o), content); err != nil {
						t.Errorf("%+v: %v", o, err)
					}
					var to bytes.Buffer
					if n, err := io.Copy(&to, newReader(t, f, o)); n != int64(size) || err != nil || !bytes.Equal(to.Bytes(), content) {
						t.Errorf("%+v: WriteTo = %d, %v, or wrong data", o, n, err)
					}
				}
			})
		})
	}
}

// TestReaderFromAnyOffset reads from and seeks to offsets that O_DIRECT does not allow.
func TestReaderFromAnyOffset(t *testing.T) {
	content := random(200_001)
	overReaders(t, fileOf(t, content), func(t *testing.T, f *ufile.File) {
		rng := rand.New(rand.NewPCG(5, 6))
		start := int64(12_345)
		r := newReader(t, f, ufile.ReaderOptions{Offset: start, BlockSize: 8192})
		for pos, i := start, 0; i < 300; i++ {
			if i%7 == 6 {
				to := rng.Int64N(220_000)
				offset, whence := to, io.SeekStart
				switch i % 3 {
				case 1:
					offset, whence = to-pos, io.SeekCurrent
				case 2:
					offset, whence = to-int64(len(content)), io.SeekEnd
				}
				if n, err := r.Seek(offset, whence); n != to || err != nil {
					t.Fatalf("Seek(%d, %d) = %d, %v, want %d", offset, whence, n, err, to)
				}
				pos = to
			}
			p := make([]byte, 1+rng.IntN(20_000))
			n, err := r.Read(p)
			rest := content[min(int(pos), len(content)):]
			if len(rest) == 0 {
				if n != 0 || err != io.EOF {
					t.Fatalf("at %d: %d, %v, want the end", pos, n, err)
				}
				continue
			}
			if n == 0 || err != nil || !bytes.HasPrefix(rest, p[:n]) {
				t.Fatalf("at %d: %d, %v, or wrong data", pos, n, err)
			}
			pos += int64(n)
		}
		if _, err := r.Seek(-1, io.SeekStart); !errors.Is(err, os.ErrInvalid) {
			t.Errorf("before the start: %v", err)
		}
		if _, err := r.Seek(0, 9); !errors.Is(err, os.ErrInvalid) {
			t.Errorf("with an invalid whence: %v", err)
		}
		if n, err := f.Seek(0, io.SeekCurrent); n != 0 || err != nil {
			t.Errorf("the file's own position: %d, %v", n, err)
		}
	})
}

// TestReaderOfAFileThatChangesItsSize continues to read after the end of a file that has
// grown, and finds the end of one that has shrunk.
func TestReaderOfAFileThatChangesItsSize(t *testing.T) {
	content := random(100_000)
	path := fileOf(t, nil)
	overReaders(t, path, func(t *testing.T, f *ufile.File) {
		if err := os.WriteFile(path, content[:50_000], 0o600); err != nil {
			t.Fatal(err)
		}
		r := newReader(t, f, ufile.ReaderOptions{BlockSize: 8192})
		for _, size := range []int{50_000, 50_001, 50_001, 80_000, 100_000} {
			if err := os.WriteFile(path, content[:size], 0o600); err != nil {
				t.Fatal(err)
			}
			pos, _ := r.Seek(0, io.SeekCurrent)
			got, err := io.ReadAll(r)
			if err != nil || !bytes.Equal(got, content[pos:size]) {
				t.Fatalf("grown to %d: %d bytes, %v", size, len(got), err)
			}
		}
		// The read-ahead found an end that is no longer the end.
		if err := os.Truncate(path, 50_000); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(r, make([]byte, 40_000)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, content[40_000:]) {
			t.Errorf("grown while it was read ahead: %d bytes, %v", len(got), err)
		}
		if _, err := r.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 10_000)
		if _, err := io.ReadFull(r, p); err != nil || !bytes.Equal(p, content[:10_000]) {
			t.Fatalf("%v, or wrong data", err)
		}
		if err := os.Truncate(path, 20_000); err != nil {
			t.Fatal(err)
		}
		// Data that was read ahead may still be returned, but no other data.
		got, err := io.ReadAll(r)
		if err != nil || len(got) < 10_000 || !bytes.HasPrefix(content[10_000:], got) {
			t.Errorf("shrunk: %d bytes, %v, or wrong data", len(got), err)
		}
		if n, err := r.Seek(0, io.SeekEnd); n != 20_000 || err != nil {
			t.Errorf("the end is at %d, %v", n, err)
		}
	})
}

func TestReaderAfterClose(t *testing.T) {
	content := random(100_000)
	path := fileOf(t, content)
	overReaders(t, path, func(t *testing.T, f *ufile.File) {
		r, other := newReader(t, f, ufile.ReaderOptions{BlockSize: 4096}), newReader(t, f, ufile.ReaderOptions{BlockSize: 4096})
		for _, r := range []*ufile.Reader{r, other} {
			if _, err := io.ReadFull(r, make([]byte, 20_000)); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if err := r.Close(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("the second Close: %v", err)
		}
		readAt(t, f, ufile.AlignedBuffer(4096), 0)
		if err := f.Close(); err != nil { // with blocks in flight
			t.Error(err)
		}
		for name, r := range map[string]*ufile.Reader{"reader": r, "file": other} {
			if n, err := r.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrClosed) {
				t.Errorf("%s closed: Read = %d, %v", name, n, err)
			}
			if n, err := r.WriteTo(io.Discard); n != 0 || !errors.Is(err, os.ErrClosed) {
				t.Errorf("%s closed: WriteTo = %d, %v", name, n, err)
			}
			if _, err := r.Seek(0, 0); !errors.Is(err, os.ErrClosed) {
				t.Errorf("%s closed: Seek: %v", name, err)
			}
		}
	})
	if _, err := ufile.NewReader(nil, ufile.ReaderOptions{}).Read(make([]byte, 1)); err != os.ErrInvalid {
		t.Errorf("a nil file: %v", err)
	}
}

// TestReaderReportsErrors causes errors of the file and of the destination.
func TestReaderReportsErrors(t *testing.T) {
	content := random(100_000)
	path := fileOf(t, content)
	overModes(t, func(t *testing.T, s *ufile.System) {
		f := open(t, s, path, os.O_WRONLY)
		_, want := f.ReadAt(make([]byte, 1), 0)
		if n, err := newReader(t, f, ufile.ReaderOptions{}).Read(make([]byte, 1)); n != 0 || fmt.Sprint(err) != fmt.Sprint(want) {
			t.Errorf("of a file opened for writing: %d, %v, want %v", n, err, want)
		}
		f = open(t, s, path, os.O_RDONLY)
		if _, err := newReader(t, f, ufile.ReaderOptions{Offset: -1}).Read(make([]byte, 1)); err == nil {
			t.Error("NewReader accepts a negative offset")
		}
		r := newReader(t, f, ufile.ReaderOptions{BlockSize: 4096})
		broken := errors.New("broken")
		if n, err := r.WriteTo(&failing{left: 10_000, err: broken}); n != 10_000 || err != broken {
			t.Errorf("a destination that fails: %d, %v", n, err)
		}
		if n, err := r.WriteTo(&failing{left: 10_000}); n != 10_000 || err != io.ErrShortWrite {
			t.Errorf("a destination that writes too little: %d, %v", n, err)
		}
		if rest, err := io.ReadAll(r); err != nil || !bytes.Equal(rest, content[20_000:]) {
			t.Errorf("after these errors: %d bytes, %v", len(rest), err)
		}
	})
}

// failing accepts the given number of bytes and then fails.
type failing struct {
	left int
	err  error
}

func (w *failing) Write(p []byte) (int, error) {
	n := min(len(p), w.left)
	w.left -= n
	if n < len(p) {
		return n, w.err
	}
	return n, nil
}

// TestReaderReadsAheadThroughTheRing counts which route the blocks took, and checks that a
// single read requests a single block.
func TestReaderReadsAheadThroughTheRing(t *testing.T) {
	needRing(t)
	const block = 4096
	content := random(64 * block)
	path := fileOf(t, content)
	needDirect(t, path)
	f := open(t, newSystem(t, ufile.Options{}), path, os.O_RDONLY|sys.ODirect)
	r := newReader(t, f, ufile.ReaderOptions{BlockSize: block, Blocks: 4})
	if _, err := io.ReadFull(r, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	if got := f.Stats(); got != (ufile.Stats{Ring: 1}) {
		t.Errorf("after one read: %+v", got)
	}
	if _, err := io.ReadFull(r, make([]byte, 30*block)); err != nil {
		t.Fatal(err)
	}
	if got := f.Stats(); got.Plain != 0 || got.Ring < 31 || got.Ring > 34 {
		t.Errorf("after 31 blocks, with at most 3 ahead: %+v", got)
	}
}

// TestReaderDoesNotAllocate counts allocations while blocks are read.
func TestReaderDoesNotAllocate(t *testing.T) {
	path := fileOf(t, make([]byte, 4<<20))
	overReaders(t, path, func(t *testing.T, f *ufile.File) {
		r := newReader(t, f, ufile.ReaderOptions{BlockSize: 4096})
		p := make([]byte, 4096)
		read := func() {
			if _, err := io.ReadFull(r, p); err != nil {
				t.Fatal(err)
			}
		}
		for range 20 {
			read()
		}
		if n := ringtest.Allocations(300, read); n != 0 {
			t.Errorf("%v allocations per block", n)
		}
	})
}

// TestReadersSideBySide uses many readers of one file, some of which are closed with blocks
// in flight.
func TestReadersSideBySide(t *testing.T) {
	content := random(400_000)
	path := fileOf(t, content)
	overReaders(t, path, func(t *testing.T, f *ufile.File) {
		var wg sync.WaitGroup
		for g := range 40 {
			wg.Go(func() {
				off := int64(g * 5000)
				r := ufile.NewReader(f, ufile.ReaderOptions{Offset: off, BlockSize: 8192, Blocks: 2 + g%4})
				if g%3 == 0 {
					if _, err := io.ReadFull(r, make([]byte, 30_000)); err != nil {
						t.Error(err)
					}
					if err := r.Close(); err != nil {
						t.Error(err)
					}
					return
				}
				got, err := io.ReadAll(r)
				if err != nil || !bytes.Equal(got, content[off:]) {
					t.Errorf("from %d: %d bytes, %v, or wrong data", off, len(got), err)
				}
			})
		}
		wg.Wait()
	})
}

// TestReaderOfNoFile checks that a nil Reader returns the errors of a nil File.
func TestReaderOfNoFile(t *testing.T) {
	r := ufile.NewReader(nil, ufile.ReaderOptions{})
	if _, err := r.Read(make([]byte, 1)); err != os.ErrInvalid {
		t.Errorf("Read: %v", err)
	}
	for range 2 {
		if err := r.Close(); err != os.ErrInvalid {
			t.Errorf("Close: %v", err)
		}
	}
}
