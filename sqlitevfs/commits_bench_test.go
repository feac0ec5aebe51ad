// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"
)

// BenchmarkCommits measures commits of one row, in WAL mode with
// synchronous=FULL, by n databases at the same time.
func BenchmarkCommits(b *testing.B) {
	for _, n := range []int{1, 16, 64} {
		for _, how := range []string{"vfs=os", "vfs=ringside-plain", "vfs=ringside-log"} {
			b.Run(fmt.Sprintf("%s/%d", how, n), func(b *testing.B) { benchCommits(b, how, n) })
		}
	}
}

func benchCommits(b *testing.B, how string, n int) {
	dir := b.TempDir()
	var conns []*sqlite3.Conn
	for i := range n {
		c, err := sqlite3.Open("file:" + filepath.Join(dir, fmt.Sprintf("%d.db", i)) + "?" + how)
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		if err := c.Exec(`PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)`); err != nil {
			b.Fatal(err)
		}
		conns = append(conns, c)
	}
	b.ResetTimer()
	start := time.Now()
	var wg sync.WaitGroup
	for i, c := range conns {
		wg.Go(func() {
			s, _, err := c.Prepare(`INSERT INTO t(v) VALUES('a row of some size, as tenants have it')`)
			if err != nil {
				b.Error(err)
				return
			}
			defer s.Close()
			for j := i; j < b.N; j += n {
				if err := s.Exec(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "commits/s")
}
