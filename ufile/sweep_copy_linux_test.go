// SPDX-License-Identifier: MIT

package ufile_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/ringside-io/ringside/internal/sweep"
	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/reactor"
	"github.com/ringside-io/ringside/ufile"
)

// other opens a second file, with some content.
func (w *swept) other(t *sweep.Trial, s *ufile.System, content []byte) *ufile.File {
	path := filepath.Join(w.dir, "other")
	_ = os.Remove(path)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatalf("%v", err)
	}
	f, err := s.OpenFile(path, os.O_RDWR|w.direct, 0)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return f
}

// readerReads reads with the buffers of a caller, seeks, and reads again.
func (w *swept) readerReads(t *sweep.Trial) {
	w.with(t, ufile.ModeRing, 0, func(_ *ufile.System, f *ufile.File) {
		r := ufile.NewReader(f, ufile.ReaderOptions{BlockSize: 8192, Blocks: 3})
		t.Arm()
		for _, from := range []int{0, 20_000} {
			if _, err := r.Seek(int64(from), io.SeekStart); err != nil {
				t.Errorf("Seek: %v", err)
			}
			got := make([]byte, 20_000)
			n, err := io.ReadFull(r, got)
			if !t.Judge("Reader", err) && errors.Is(err, reactor.ErrFailed) {
				break
			}
			if !bytes.Equal(got[:n], w.content[from:from+n]) {
				t.Errorf("what was read at %d is not the file's", from)
			}
		}
		t.Disarm()
		if err := r.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if _, err := r.Read(make([]byte, 1)); !errors.Is(err, os.ErrClosed) {
			t.Errorf("a read after close: %v", err)
		}
	})
}

// sparse copies a range that has a hole to a file that has none.
func (w *swept) sparse(t *sweep.Trial) {
	w.with(t, ufile.ModeAuto, 0, func(s *ufile.System, f *ufile.File) {
		holed := bytes.Clone(w.content)
		if err := punchHole(f, 8192, 16384); err == nil {
			clear(holed[8192 : 8192+16384])
		}
		dst := w.other(t, s, w.content)
		defer dst.Close()
		t.Arm()
		n, err := ufile.CopyRange(context.Background(), dst, 0, f, 0, int64(len(holed)), ufile.CopyOptions{BlockSize: 8192, Blocks: 2})
		t.Disarm()
		ok := t.Judge("CopyRange", err)
		now, readErr := os.ReadFile(dst.Name())
		if readErr != nil || int64(len(now)) < n || !bytes.Equal(now[:n], holed[:n]) {
			t.Errorf("%d bytes are said to be copied, and are not", n)
		}
		if ok && n != int64(len(holed)) {
			t.Errorf("%d bytes of %d were copied", n, len(holed))
		}
	})
}

// positions copies by ReadFrom and by WriteTo, from the positions of files with
// O_DIRECT, which is where these are not package os's own.
func (w *swept) positions(t *sweep.Trial) {
	w.with(t, ufile.ModeAuto, w.direct, func(s *ufile.System, f *ufile.File) {
		dst := w.other(t, s, nil)
		defer dst.Close()
		var got bytes.Buffer
		t.Arm()
		written, writeErr := f.WriteTo(&got)
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			t.Errorf("Seek: %v", err)
		}
		read, readErr := dst.ReadFrom(f)
		t.Disarm()
		if ok := t.Judge("WriteTo", writeErr); written != int64(got.Len()) || !bytes.HasPrefix(w.content, got.Bytes()) || ok && got.Len() != len(w.content) {
			t.Errorf("WriteTo: %d bytes, %d have come, or others", written, got.Len())
		}
		ok := t.Judge("ReadFrom", readErr)
		now, err := os.ReadFile(dst.Name())
		if err != nil || int64(len(now)) < read || !bytes.Equal(now[:read], w.content[:read]) || ok && len(now) != len(w.content) {
			t.Errorf("ReadFrom: %d bytes, the file has %d, %v, or others", read, len(now), err)
		}
	})
}

// punchHole frees a part of a file, where the file system can.
func punchHole(f *ufile.File, off, n int64) error {
	return sys.PunchHole(int(f.Fd()), off, n)
}
