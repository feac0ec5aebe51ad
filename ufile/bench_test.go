// SPDX-License-Identifier: MIT

package ufile_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ringside-io/ringside/ufile"
)

// benchmarkFile opens a file of 1 MiB.
func benchmarkFile(b *testing.B, mode ufile.Mode) *ufile.File {
	path := filepath.Join(b.TempDir(), "file")
	if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
		b.Fatal(err)
	}
	s, err := ufile.NewSystem(ufile.Options{Mode: mode})
	if err != nil {
		b.Skip(err)
	}
	f, err := s.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.Close() })
	return f
}

func benchmarkModes(b *testing.B, do func(f *ufile.File, p []byte, off int64) (int, error)) {
	for _, mode := range []ufile.Mode{ufile.ModeAuto, ufile.ModePlain, ufile.ModeRing} {
		b.Run(mode.String(), func(b *testing.B) {
			f := benchmarkFile(b, mode)
			b.ReportAllocs()
			b.SetParallelism(16)
			b.RunParallel(func(pb *testing.PB) {
				p := make([]byte, 4096)
				for i := 0; pb.Next(); i++ {
					if n, err := do(f, p, int64(i%256)*4096); n != len(p) {
						b.Error(n, err)
						return
					}
				}
			})
		})
	}
}

// BenchmarkReadAt reads 4 KiB of cached data per operation.
func BenchmarkReadAt(b *testing.B) {
	benchmarkModes(b, func(f *ufile.File, p []byte, off int64) (int, error) { return f.ReadAt(p, off) })
}

// BenchmarkWriteAt overwrites 4 KiB per operation.
func BenchmarkWriteAt(b *testing.B) {
	benchmarkModes(b, func(f *ufile.File, p []byte, off int64) (int, error) { return f.WriteAt(p, off) })
}
