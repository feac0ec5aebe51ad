// SPDX-License-Identifier: MIT

package ufile_test

import (
	"bytes"
	"context"
	"os"
	"testing"

	"github.com/ringside-io/ringside/ufile"
)

// TestSequentialFile reads and writes a file of /proc at an offset, in each way. pwrite(2)
// refuses a sequential file, and a ring does not check that. With ModeRing a worker thread
// executes the entries.
// Promise: ufile/os-file-s
func TestSequentialFile(t *testing.T) {
	const name = "/proc/self/comm"
	std, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Skipf("needs %s: %v", name, err)
	}
	defer std.Close()
	content := make([]byte, 3)
	if n, err := std.ReadAt(content, 0); n != 3 || err != nil {
		t.Skipf("needs %s of three bytes: %d, %v", name, n, err)
	}
	_, refused := std.WriteAt(content, 0)
	if refused == nil {
		t.Skip("needs a file that pwrite(2) refuses")
	}
	overModes(t, func(t *testing.T, s *ufile.System) {
		b, err := s.NewBatch(ufile.BatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for way, do := range map[string]struct {
			read, write func(f *ufile.File, p []byte) (int, error)
		}{
			"At": {
				func(f *ufile.File, p []byte) (int, error) { return f.ReadAt(p, 0) },
				func(f *ufile.File, p []byte) (int, error) { return f.WriteAt(p, 0) },
			},
			"AtContext": {
				func(f *ufile.File, p []byte) (int, error) { return f.ReadAtContext(ctx, p, 0) },
				func(f *ufile.File, p []byte) (int, error) { return f.WriteAtContext(ctx, p, 0) },
			},
			"vAt": {
				func(f *ufile.File, p []byte) (int, error) { return f.ReadvAt([][]byte{p[:2], p[2:]}, 0) },
				func(f *ufile.File, p []byte) (int, error) { return f.WritevAt([][]byte{p[:2], p[2:]}, 0) },
			},
			"Batch": {
				func(f *ufile.File, p []byte) (int, error) { return inBatch(b.Read, f, p) },
				func(f *ufile.File, p []byte) (int, error) { return inBatch(b.Write, f, p) },
			},
		} {
			f := open(t, s, name, os.O_RDWR)
			p := make([]byte, len(content))
			if n, err := do.read(f, p); n != len(p) || err != nil || !bytes.Equal(p, content) {
				t.Errorf("Read%s: %d, %v, %q", way, n, err, p)
			}
			if n, err := do.write(f, p); n != 0 || err == nil || err.Error() != refused.Error() {
				t.Errorf("Write%s: %d, %v, want %v", way, n, err, refused)
			}
		}
	})
}

// inBatch reads or writes one range at the start of a file.
func inBatch(call func([]ufile.Range) error, f *ufile.File, p []byte) (int, error) {
	ranges := []ufile.Range{{File: f, Buf: p}}
	err := call(ranges)
	return ranges[0].N, err
}
