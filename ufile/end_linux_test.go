// SPDX-License-Identifier: MIT

package ufile

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/sys"
)

// TestCallsOfACachedFile counts the reads that a small cached file takes: one if it ends within a
// page, where that is the end. A read that stops between two pages may have met one that is not
// cached.
func TestCallsOfACachedFile(t *testing.T) {
	if !sys.Faulty {
		t.Skip("needs a build with the race detector, which has the system-call hook")
	}
	f := lazyFile(t, os.O_RDONLY)
	s, err := NewSystem(Options{})
	if err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int32
	sys.SetFaults(&sys.Faults{Call: func(name string, n int) (int, syscall.Errno) {
		if strings.HasPrefix(name, "pread") {
			calls.Add(1)
		}
		return n, 0
	}})
	defer sys.SetFaults(nil)
	for _, test := range []struct{ size, most int }{
		{1, 1}, {4095, 1}, {5000, 1}, {4096, 2}, {8192, 2}, {0, 3},
	} {
		name := filepath.Join(filepath.Dir(f.Name()), fmt.Sprint(test.size))
		want := strings.Repeat("0123456789", 1000)[:test.size]
		if err := os.WriteFile(name, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		for way, read := range map[string]func() (string, error){
			"Open, ReadAt": func() (string, error) {
				f, err := s.Open(name)
				if err != nil {
					return "", err
				}
				defer f.Close()
				p := make([]byte, 10_000)
				n, err := f.ReadAt(p, 0)
				if err == io.EOF {
					err = nil
				}
				return string(p[:n]), err
			},
			"ReadFile": func() (string, error) {
				p, err := s.ReadFile(name)
				return string(p), err
			},
			"ReadFiles": func() (got string, err error) {
				for d := range s.ReadFiles(context.Background(), []string{name}, ReadFilesOptions{}) {
					got, err = string(d.Data), d.Err
				}
				return got, err
			},
		} {
			calls.Store(0)
			got, err := read()
			if n := int(calls.Load()); got != want || err != nil || n > test.most {
				t.Errorf("%d bytes, %s: %d bytes, %v, by %d reads, want at most %d", test.size, way, len(got), err, n, test.most)
			}
		}
	}
	// A file that grows is read to its end.
	g, err := s.Open(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	p := make([]byte, 20_000)
	for _, size := range []int{10_000, 10_001, 12_288, 12_289} {
		if err := os.WriteFile(f.Name(), make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		if n, err := g.ReadAt(p, 0); n != size || err != io.EOF {
			t.Errorf("%d bytes: ReadAt = %d, %v", size, n, err)
		}
	}
}
