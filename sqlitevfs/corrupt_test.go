// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/ncruces/go-sqlite3"
)

// TestDamagedFiles opens databases with one file damaged or truncated: each call must
// return an error or a result.
// Promise: sqlitevfs/corrupt-truncated-crafted
func TestDamagedFiles(t *testing.T) {
	needLog(t)
	path := dbFile(t)
	committer(t, path, 60)()
	dir := filepath.Dir(path)
	names := []string{path, path + "-wal", filepath.Join(dir, logName)}
	var good [][]byte
	for _, name := range names {
		p, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		good = append(good, p)
	}
	rounds := 12
	switch {
	case *long:
		rounds = 2000
	case testing.Short():
		rounds = 4
	}
	opened, refused := 0, 0
	for range rounds {
		seed := rand.Uint64()
		rnd := rand.New(rand.NewPCG(seed, 0))
		which := rnd.IntN(len(names))
		for i, name := range names {
			p := good[i]
			if i == which {
				p = damage(rnd, p)
			}
			if err := os.WriteFile(name, p, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if useDamaged(path, []string{Name, NameLog, NamePrefetch}[rnd.IntN(3)]) {
			opened++
		} else {
			refused++
		}
		os.Remove(path + "-shm")
		os.Remove(path + "-journal")
		if t.Failed() {
			t.Fatalf("seed %d, file %d", seed, which)
		}
	}
	t.Logf("%d databases were read, %d refused", opened, refused)
}

// damage changes bytes, a block, or the end.
func damage(rnd *rand.Rand, p []byte) []byte {
	q := append([]byte(nil), p...)
	switch rnd.IntN(4) {
	case 0:
		return q[:rnd.IntN(len(q))]
	case 1:
		at := rnd.IntN(len(q)/512) * 512
		for i := at; i < at+512; i++ {
			q[i] = byte(rnd.Uint32())
		}
	case 2:
		// Most damage is in the headers, which have the most effect.
		for range 1 + rnd.IntN(8) {
			q[rnd.IntN(min(len(q), 200))] = byte(rnd.Uint32())
		}
	default:
		for range 1 + rnd.IntN(200) {
			q[rnd.IntN(len(q))] ^= 1 << rnd.IntN(8)
		}
	}
	return q
}

// useDamaged reads and writes, and reports whether all calls succeeded.
func useDamaged(path, name string) bool {
	c, err := sqlite3.Open(uri(path, name))
	if err != nil {
		return false
	}
	defer c.Close()
	ok := true
	for _, sql := range []string{
		"PRAGMA synchronous=FULL", "SELECT sum(length(v)) FROM t", "PRAGMA integrity_check",
		"INSERT INTO t(v) VALUES(randomblob(100))", "PRAGMA wal_checkpoint(TRUNCATE)", "SELECT count(*) FROM t",
	} {
		if err := c.Exec(sql); err != nil {
			ok = false
		}
	}
	return ok
}
