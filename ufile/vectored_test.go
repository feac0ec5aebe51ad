// SPDX-License-Identifier: MIT

package ufile_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/ufile"
)

// TestVectored compares vectored calls with calls of os.File that use one buffer.
// Promise: ufile/vectored-call-returns
func TestVectored(t *testing.T) {
	overModes(t, func(t *testing.T, s *ufile.System) {
		content := random(1 << 20)
		path := fileOf(t, content)
		f := open(t, s, path, os.O_RDWR)
		rng := rand.New(rand.NewPCG(1, 2))
		for round := range 200 {
			bufs, total := make([][]byte, rng.IntN(8)), 0
			for i := range bufs {
				bufs[i] = make([]byte, rng.IntN(20_000))
				total += len(bufs[i])
			}
			off := rng.IntN(len(content) + 1000)
			want := content[min(off, len(content)):min(off+total, len(content))]
			if round%3 == 0 && off+total <= len(content) {
				for _, p := range bufs {
					for i := range p {
						p[i] = byte(rng.Uint32())
					}
				}
				n, err := f.WritevAt(bufs, int64(off))
				if n != total || err != nil {
					t.Fatalf("wrote %d of %d bytes in %d buffers at %d: %v", n, total, len(bufs), off, err)
				}
				copy(content[off:], bytes.Join(bufs, nil))
				continue
			}
			n, err := f.ReadvAt(bufs, int64(off))
			if n != len(want) || !bytes.Equal(bytes.Join(bufs, nil)[:n], want) {
				t.Fatalf("read %d of %d bytes in %d buffers at %d, or others: %v", n, len(want), len(bufs), off, err)
			}
			if err == nil && n < total || err != nil && (err != io.EOF || n == total) {
				t.Fatalf("read %d of %d bytes: %v", n, total, err)
			}
		}
		if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, content) {
			t.Errorf("the file does not hold what was written: %v", err)
		}
	})
}

// TestVectoredManyBuffers passes more buffers than one system call accepts, some of them
// empty.
// Promise: ufile/vectored-call-returns
func TestVectoredManyBuffers(t *testing.T) {
	overModes(t, func(t *testing.T, s *ufile.System) {
		content := random(3000 * 7)
		f := open(t, s, fileOf(t, nil), os.O_RDWR)
		var bufs [][]byte
		for i := 0; i < len(content); i += 7 {
			bufs = append(bufs, content[i:i+7], nil)
		}
		if n, err := f.WritevAt(bufs, 0); n != len(content) || err != nil {
			t.Fatalf("wrote %d bytes, %v", n, err)
		}
		got := make([]byte, len(content))
		bufs = bufs[:0]
		for i := 0; i < len(got); i += 7 {
			bufs = append(bufs, got[i:i+7])
		}
		if n, err := f.ReadvAt(bufs, 0); n != len(content) || err != nil || !bytes.Equal(got, content) {
			t.Errorf("read %d bytes, or others: %v", n, err)
		}
	})
}

// TestVectoredDirect transfers aligned buffers with O_DIRECT.
// Promise: ufile/vectored-call-returns
func TestVectoredDirect(t *testing.T) {
	content := random(64 << 10)
	path := fileOf(t, content)
	needDirect(t, path)
	overModes(t, func(t *testing.T, s *ufile.System) {
		f := open(t, s, path, os.O_RDWR|sys.ODirect)
		bufs := [][]byte{ufile.AlignedBuffer(4096), ufile.AlignedBuffer(16384), ufile.AlignedBuffer(8192)}
		if n, err := f.ReadvAt(bufs, 4096); n != 28672 || err != nil || !bytes.Equal(bytes.Join(bufs, nil), content[4096:4096+28672]) {
			t.Errorf("read %d bytes, or others: %v", n, err)
		}
		if n, err := f.WritevAt(bufs, 4096); n != 28672 || err != nil {
			t.Errorf("wrote %d bytes: %v", n, err)
		}
		if n, err := f.ReadvAt(bufs, 60<<10); n != 4096 || err != io.EOF {
			t.Errorf("across the end of the file: %d bytes, %v", n, err)
		}
	})
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, content) {
		t.Errorf("the file has changed: %v", err)
	}
}

// TestVectoredErrors compares errors with those of ReadAt and WriteAt.
// Promise: ufile/vectored-call-returns
func TestVectoredErrors(t *testing.T) {
	overModes(t, func(t *testing.T, s *ufile.System) {
		path := fileOf(t, random(100))
		two := [][]byte{make([]byte, 10), make([]byte, 10)}
		closed := open(t, s, path, os.O_RDWR)
		closed.Close()
		read, write := open(t, s, path, os.O_RDONLY), open(t, s, path, os.O_WRONLY)
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		pipe, err := s.NewFile(r)
		if err != nil {
			t.Fatal(err)
		}
		defer pipe.Close()
		for name, c := range map[string]struct {
			f   *ufile.File
			off int64
		}{
			"nil": {nil, 0}, "closed": {closed, 0}, "negative": {read, -1}, "pipe": {pipe, 0},
			"for reading": {read, 0}, "for writing": {write, 0}, "appending": {open(t, s, path, os.O_RDWR|os.O_APPEND), 0},
		} {
			_, want := c.f.ReadAt(two[0], c.off)
			if _, err := c.f.ReadvAt(two, c.off); !sameError(err, want) {
				t.Errorf("%s: ReadvAt returned %v, want %v", name, err, want)
			}
			_, want = c.f.WriteAt(two[0], c.off)
			if _, err := c.f.WritevAt(two, c.off); !sameError(err, want) {
				t.Errorf("%s: WritevAt returned %v, want %v", name, err, want)
			}
		}
	})
}

func sameError(a, b error) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Error() == b.Error()
}

// TestForEngines makes the calls that storage engines make besides reads and writes.
func TestForEngines(t *testing.T) {
	overModes(t, func(t *testing.T, s *ufile.System) {
		f, err := s.CreateTemp(t.TempDir(), "x*y")
		if err != nil {
			t.Fatal(err)
		}
		writeAt(t, f, random(10_000), 0)
		if err := f.Datasync(); err != nil {
			t.Error(err)
		}
		err = f.SyncFileRange(0, 4096, ufile.SyncWaitBefore|ufile.SyncWrite|ufile.SyncWaitAfter)
		if err != nil && !errors.Is(err, errors.ErrUnsupported) {
			t.Error(err)
		}
		if f.OSFile().Name() != f.Name() || f.OSFile().Fd() != f.Fd() {
			t.Errorf("OSFile is %v", f.OSFile())
		}
		f.Close()
		if err := f.Datasync(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("Datasync of a closed file: %v", err)
		}
		if err := f.SyncFileRange(0, 0, ufile.SyncWrite); !errors.Is(err, os.ErrClosed) {
			t.Errorf("SyncFileRange of a closed file: %v", err)
		}
		if _, err := s.CreateTemp(t.TempDir(), "a/b"); err == nil {
			t.Error("CreateTemp with a separator in the pattern")
		}
	})
	if err := (*ufile.File)(nil).Datasync(); !errors.Is(err, os.ErrInvalid) {
		t.Errorf("Datasync of a nil file: %v", err)
	}
}
