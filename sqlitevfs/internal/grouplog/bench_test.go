// SPDX-License-Identifier: MIT

package grouplog

import (
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"
)

// BenchmarkCommit measures commits of two pages of 4 KiB by n databases: "log"
// through the log, "sync" by a sync of each WAL.
func BenchmarkCommit(b *testing.B) {
	needLocks(b)
	for _, n := range []int{1, 16, 64} {
		b.Run("log/"+strconv.Itoa(n), func(b *testing.B) {
			benchCommits(b, n, func(w *testWAL, off int64, frames []byte) error {
				_, err := w.wal.Commit(w.header, off, frames)
				return err
			})
		})
		b.Run("sync/"+strconv.Itoa(n), func(b *testing.B) {
			benchCommits(b, n, func(w *testWAL, _ int64, _ []byte) error { return w.wal.Sync() })
		})
	}
}

func benchCommits(b *testing.B, n int, commit func(*testWAL, int64, []byte) error) {
	dir := b.TempDir()
	l, _ := mustOpen(b, dir, Options{})
	defer mustClose(b, l)
	all := wals(b, dir, n)
	for _, w := range all {
		w.attach(l)
	}
	for _, w := range all {
		for range 60 {
			frames, sum := w.transaction(16) // of 512 bytes
			w.commits, w.sum = append(w.commits, frames), sum
		}
	}
	b.ResetTimer()
	start := time.Now()
	var wg sync.WaitGroup
	for i, w := range all {
		wg.Go(func() {
			off := w.off
			for j, k := i, 0; j < b.N; j, k = j+n, k+1 {
				frames := w.commits[k%len(w.commits)]
				if k > 0 && k%len(w.commits) == 0 {
					off = walHeaderSize // a checkpoint syncs the WAL
					if err := w.wal.Sync(); err != nil {
						b.Error(err)
					}
					w.wal.SyncedTo(w.parsed, off)
				}
				if _, err := w.file.WriteAt(frames, off); err != nil {
					b.Error(err)
				}
				if err := commit(w, off, frames); err != nil {
					b.Error(err)
				}
				off += int64(len(frames))
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "commits/s")
}

// BenchmarkRecover recovers a log of 64 MiB whose frames are lost in 16 WALs.
func BenchmarkRecover(b *testing.B) {
	needLocks(b)
	dir := b.TempDir()
	l, _ := mustOpen(b, dir, Options{MaxSize: 96 << 20, Always: true})
	all := wals(b, dir, 16)
	for _, w := range all {
		w.attach(l)
	}
	for written := 0; written < 64<<20; {
		for _, w := range all {
			frames, off := w.append(37) // the largest commit that the log takes
			if _, err := w.wal.Commit(w.header, off, frames); err != nil {
				b.Fatal(err)
			}
			w.acked++
			written += len(frames)
		}
	}
	if s := l.Stats(); s.Reclaims != 0 {
		b.Fatalf("%+v", s)
	}
	crash(l)
	path := filepath.Join(dir, defaultName)
	p, err := os.ReadFile(path)
	if err != nil {
		b.Fatal(err)
	}
	var cpu time.Duration
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		b.StopTimer()
		for _, w := range all {
			w.lose(0)
		}
		if err := os.WriteFile(path, p, 0o600); err != nil {
			b.Fatal(err)
		}
		used := cpuTime(b)
		b.StartTimer()
		l, r, err := Open(dir, Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		cpu += cpuTime(b) - used
		if r.Applied != r.Records {
			b.Fatalf("%+v", r)
		}
		for _, w := range all {
			w.check()
		}
		mustClose(b, l)
		b.StartTimer()
	}
	b.ReportMetric(cpu.Seconds()/float64(b.N), "cpu-s/op")
}
