// SPDX-License-Identifier: MIT

package powercut_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ncruces/go-sqlite3"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/sqlitevfs"
	sqlitecut "github.com/ringside-io/ringside/sqlitevfs/internal/powercut"
)

var (
	mixes   = flag.Int("mixes", 0, "how many random mixes of connections to try; 0: three, thirty with RINGSIDE_LONG=1")
	mixSeed = flag.Uint64("mixseed", 0, "try only the mix of this seed")
)

// mix is a random schedule of connections that share databases and a log, with different
// durability: with the log, without it, and without this package, as in other processes.
type mix struct {
	t     *testing.T
	rng   *rand.Rand
	r     *sqlitecut.Recorder
	dir   string
	vfs   []string
	conns []*mixed
	n     map[string]int // commits of each database
	off   bool           // there are connections with synchronous=OFF
	trail []string
}

// mixed is a connection. Some connections have another database attached.
type mixed struct {
	c        *sqlite3.Conn
	db       string
	attached string // "" or the other database
	level    string
	name     string
}

// durable reports whether its commits are acknowledged.
func (c *mixed) durable() bool { return c.level == "FULL" || c.level == "EXTRA" }

func newMix(t *testing.T, seed uint64) *mix {
	dir := fastDir(t)
	m := &mix{t: t, rng: rand.New(rand.NewPCG(seed, 0)), r: sqlitecut.NewRecorder(dir), dir: dir, n: map[string]int{}}
	v := m.r.VFS(nil)
	if m.rng.IntN(2) == 0 {
		v.MaxRecord = 15 << 10
	}
	v.Choose = m.rng.IntN(2) == 0
	stock := register(t, v)
	m.vfs = []string{stock + "-log", stock + "-log", stock + "-log2", stock + "-plain", stock}
	for name, log := range map[string]sqlitevfs.Switch{"-log": sqlitevfs.On, "-log2": sqlitevfs.On, "-plain": sqlitevfs.Off} {
		if err := sqlitevfs.Register(stock+name, sqlitevfs.Options{Base: stock, GroupLog: log}); err != nil {
			t.Fatal(err)
		}
	}
	// SQLite itself loses commits where a WAL is restarted, or a database is checkpointed,
	// with synchronous=OFF.
	m.off = m.rng.IntN(3) == 0
	return m
}

// connect opens a connection. The first connection to each database creates the tables, by
// the log, and stays open.
func (m *mix) connect(db string, first bool) {
	c := &mixed{db: db, level: []string{"NORMAL", "FULL", "EXTRA"}[m.rng.IntN(3)]}
	psow, name := m.rng.IntN(3), m.vfs[m.rng.IntN(len(m.vfs))]
	if m.off && m.rng.IntN(4) == 0 {
		c.level = "OFF"
	}
	if first {
		c.level, name = "FULL", m.vfs[0]
	}
	c.name = fmt.Sprintf("%s of %s, synchronous=%s, psow=%v", name[strings.LastIndex(name, "-"):], db, c.level, psow != 0)
	c.c = open(m.t, filepath.Join(m.dir, db), name+map[bool]string{true: "&psow=0"}[psow == 0])
	m.t.Cleanup(func() { c.c.Close() })
	k := work{mode: "WAL", extra: "PRAGMA wal_autocheckpoint=0"}
	if first {
		k.setup(m.t, c.c)
		m.r.Ack(db, 0)
	} else {
		exec(m.t, c.c, "PRAGMA cache_size=5; PRAGMA wal_autocheckpoint=%d", []int{0, 8}[m.rng.IntN(2)]*map[bool]int{true: 0, false: 1}[m.off])
		exec(m.t, c.c, "PRAGMA synchronous=%s", c.level)
		if other := map[string]string{"a": "b", "b": "a"}[db]; m.n[other] >= 0 && m.rng.IntN(3) == 0 {
			c.attached = other
			exec(m.t, c.c, "ATTACH 'file:%s?vfs=%s' AS other; PRAGMA other.synchronous=%s", filepath.Join(m.dir, other), name, c.level)
			c.name += " and " + other
		}
	}
	m.conns = append(m.conns, c)
}

// step makes one step with one of the connections.
func (m *mix) step() {
	c := m.conns[m.rng.IntN(len(m.conns))]
	what := "commit"
	switch n := m.rng.IntN(20); {
	case n == 0 && !m.off:
		what = "checkpoint " + []string{"PASSIVE", "FULL", "RESTART", "TRUNCATE"}[m.rng.IntN(4)]
		exec(m.t, c.c, "PRAGMA wal_checkpoint(%s)", strings.Fields(what)[1])
	case n == 1:
		what = "rollback of what was spilled"
		exec(m.t, c.c, "BEGIN; INSERT INTO b VALUES(-1, randomblob(20000)); UPDATE a SET v=randomblob(400); ROLLBACK")
	case n == 2 && c.level == "NORMAL":
		what, c.level = "turns FULL", "FULL"
		exec(m.t, c.c, "PRAGMA synchronous=FULL")
		if c.attached != "" {
			exec(m.t, c.c, "PRAGMA other.synchronous=FULL")
		}
	default:
		m.commit(c, []int{700, 700, 700, 3000, 20_000}[m.rng.IntN(5)])
	}
	m.trail = append(m.trail, c.name+": "+what)
}

// commit changes the connection's databases in one transaction.
func (m *mix) commit(c *mixed, size int) {
	sql := commitSQL("main", m.n[c.db]+1, size)
	dbs := []string{c.db}
	if c.attached != "" && m.rng.IntN(2) == 0 {
		sql += commitSQL("other", m.n[c.attached]+1, 700)
		dbs = append(dbs, c.attached)
	}
	exec(m.t, c.c, "%s", "BEGIN IMMEDIATE;"+sql+"COMMIT")
	for _, db := range dbs {
		if m.n[db]++; c.durable() {
			m.r.Ack(db, m.n[db])
		}
	}
}

// TestGroupLogMixes cuts the power of random mixes of connections: of each durability
// level, with and without the log, of this package or not, with attached databases and
// without powersafe overwrite. They commit, checkpoint, spill and roll back. Every commit
// of a connection with synchronous=FULL is there.
// Promise: sqlitevfs/log-commits-connection
func TestGroupLogMixes(t *testing.T) {
	count, states := *mixes, 250
	if count == 0 {
		count = ringtest.Rounds(30, 3)
	}
	if testing.Short() || slow {
		count, states = min(count, 2), 60
	}
	for range count {
		seed := rand.Uint64()
		if *mixSeed != 0 {
			seed = *mixSeed
		}
		t.Run(fmt.Sprintf("%x", seed), func(t *testing.T) {
			m := newMix(t, seed)
			for _, db := range []string{"a", "b"} {
				m.connect(db, true)
				m.n[db] = 0
			}
			for range 2 + m.rng.IntN(4) {
				m.connect([]string{"a", "b"}[m.rng.IntN(2)], false)
			}
			for range 16 + m.rng.IntN(12) {
				m.step()
			}
			exploreSome(t, m.r.Trace(), states, 4, logged("a", "b"))
			if t.Failed() {
				t.Logf("go test ./internal/powercut -run TestGroupLogMixes -mixseed %d\n%s", seed, strings.Join(m.trail, "\n"))
			}
		})
		if *mixSeed != 0 || t.Failed() {
			return
		}
	}
}
