// SPDX-License-Identifier: MIT

package ufile_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/ufile"
)

// TestClosedWithOperationsInFlight closes a file while all kinds of operations use it, and
// at once opens other files, which get its number: no operation reads from them or writes
// to them.
func TestClosedWithOperationsInFlight(t *testing.T) {
	rounds := ringtest.Rounds(3, 1)
	size := ringtest.Rounds(1<<20, 1<<18)
	dir := t.TempDir()
	mine, other := filepath.Join(dir, "mine"), filepath.Join(dir, "other")
	ours, theirs := bytes.Repeat([]byte("m"), size), bytes.Repeat([]byte("o"), size)
	for path, content := range map[string][]byte{mine: ours, other: theirs} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, mode := range modes {
		for _, direct := range []int{0, sys.ODirect} {
			t.Run(fmt.Sprintf("%v,direct=%v", mode, direct != 0), func(t *testing.T) {
				if direct != 0 {
					needDirect(t, mine)
				}
				s := newSystem(t, ufile.Options{Mode: mode})
				reused := 0
				// A ring that is opened meanwhile, or a file of the runtime, may take the
				// number: then the loop tries again.
				for round := 0; round < rounds || reused == 0 && round < 20; round++ {
					f := open(t, s, mine, os.O_RDWR|direct)
					number := f.Fd()
					forgetCached(t, mine)
					var wg, begun sync.WaitGroup
					users := ringtest.Rounds(24, 12)
					begun.Add(users)
					for g := range users {
						wg.Go(func() { untilClosed(t, s, f, g, size, sync.OnceFunc(begun.Done)) })
					}
					begun.Wait()
					if err := f.Close(); err != nil {
						t.Error(err)
					}
					for range 8 {
						o, err := os.OpenFile(other, os.O_RDWR, 0)
						if err != nil {
							t.Fatal(err)
						}
						defer o.Close()
						if o.Fd() == number {
							reused++
						}
					}
					wg.Wait()
				}
				if reused == 0 { // although Close has waited, so the number is free
					t.Error("the number was not reused")
				}
				for path, want := range map[string][]byte{mine: ours, other: theirs} {
					if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
						t.Errorf("%s was written to: %v", path, err)
					}
				}
			})
		}
	}
}

// untilClosed repeats one kind of operation on a file, which holds the letter m, until the
// file is closed. It calls begun after the first operation.
func untilClosed(t *testing.T, s *ufile.System, f *ufile.File, way, size int, begun func()) {
	defer begun()
	const block = 8192
	m := bytes.Repeat([]byte("m"), block)
	p := ufile.AlignedBuffer(block)
	w := ufile.AlignedBuffer(block)
	copy(w, m)
	b, err := s.NewBatch(ufile.BatchOptions{Depth: 8, Buffers: 4, BufferSize: block})
	if err != nil {
		t.Error(err)
		return
	}
	defer b.Close()
	ranges := make([]ufile.Range, 8)
	for i := range ranges {
		buf := ufile.AlignedBuffer(block)
		if i < 4 {
			buf = b.Buffer(i)
		}
		ranges[i] = ufile.Range{Buf: buf, File: f}
	}
	r := ufile.NewReader(f, ufile.ReaderOptions{BlockSize: block})
	defer r.Close()
	for i := way; ; i++ {
		off := int64(i * 7 % (size / block) * block)
		var err error
		switch way % 6 {
		case 0:
			clear(p)
			if _, err = f.ReadAt(p, off); err == nil && !bytes.Equal(p, m) {
				t.Errorf("ReadAt at %d read other data", off)
			}
		case 1:
			_, err = f.WriteAt(w, off)
		case 2, 3:
			for j := range ranges {
				ranges[j].Off = (off + int64(j*block)) % int64(size)
				if way%6 == 3 {
					copy(ranges[j].Buf, m)
				} else {
					clear(ranges[j].Buf)
				}
			}
			do := b.Read
			if way%6 == 3 {
				do = b.Write
			}
			err = do(ranges)
			for _, r := range ranges {
				if r.Err == nil && !bytes.Equal(r.Buf, m) {
					t.Errorf("a batch read other data at %d", r.Off)
				}
			}
		case 4:
			var n int
			n, err = r.Read(p)
			if !bytes.Equal(p[:n], m[:n]) {
				t.Error("a Reader read other data")
			}
			if err == io.EOF {
				_, err = r.Seek(0, io.SeekStart)
			}
		case 5:
			_, err = ufile.CopyRange(t.Context(), f, off, f, (off+block)%int64(size), block, ufile.CopyOptions{})
		}
		begun()
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil {
			t.Errorf("way %d: %v", way%6, err)
			return
		}
	}
}
