// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"
)

// BenchmarkReads reads a table with the default VFS and with this one, alternately. ns/op
// is the time of the default VFS; rate is the speed-up by this one. SQLite's own cache is
// too small to matter.
func BenchmarkReads(b *testing.B) {
	path := table(b, true, 100_000, 4096, 400)
	rnd := rand.New(rand.NewPCG(7, 8))
	lookups := func(n int) func(*testing.B, *sqlite3.Conn) {
		return func(b *testing.B, c *sqlite3.Conn) {
			s, _, err := c.Prepare("SELECT length(x) FROM t WHERE id=?1")
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			for range n {
				s.BindInt(1, rnd.IntN(100_000))
				if !s.Step() {
					b.Fatal(s.Err())
				}
				s.Reset()
			}
		}
	}
	all := func(b *testing.B, c *sqlite3.Conn) { query(b, c, whole) }
	b.Run("hot/scan", func(b *testing.B) { inTurns(b, path, false, all) })
	b.Run("hot/lookups", func(b *testing.B) { inTurns(b, path, false, lookups(5000)) })
	b.Run("cold/scan", func(b *testing.B) { inTurns(b, path, true, all) })
	for name, path := range map[string]string{
		"WITHOUT ROWID": tableAs(b, " WITHOUT ROWID", true, 100_000, 4096, 400), "16k": table(b, true, 100_000, 16384, 400),
	} {
		b.Run("cold/scan/"+name, func(b *testing.B) { inTurns(b, path, true, all) })
	}
	b.Run("cold/lookups", func(b *testing.B) { inTurns(b, path, true, lookups(1000)) })
}

func inTurns(b *testing.B, path string, cold bool, work func(*testing.B, *sqlite3.Conn)) {
	names := []string{"os", Name}
	var conns []*sqlite3.Conn
	for _, name := range names {
		c := connect(b, path, name)
		execSQL(b, c, "PRAGMA cache_size=10")
		work(b, c)
		conns = append(conns, c)
	}
	times := make([][]time.Duration, len(names))
	for i := 0; b.Loop(); i++ {
		for j := range conns {
			k := (i + j) % len(conns)
			if cold {
				evict(b, path)
			}
			start := time.Now()
			work(b, conns[k])
			times[k] = append(times[k], time.Since(start))
		}
	}
	for _, t := range times {
		slices.Sort(t)
	}
	median := func(t []time.Duration) float64 { return float64(t[len(t)/2]) }
	b.ReportMetric(median(times[0]), "ns/op")
	b.ReportMetric(median(times[0])/median(times[1]), "rate")
}
