// SPDX-License-Identifier: MIT

package replica

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/ringside-io/ringside/replica/internal/raftlog"
)

// TestIdentity: a commit is acknowledged by the leader and one follower. The leader is dead. The other
// follower, which lacks the commit, must not lead with the help of what has taken the place of the first
// one: another node at its address, or its directory with parts that were lost or exchanged.
//
// Promise: replica/identity-both-ends
func TestIdentity(t *testing.T) {
	var tried sync.Map
	c := newCluster(t, 3, Options{Election: 200 * time.Millisecond, around: func(n network) network { return votes{n, &tried} }})
	c.commit("CREATE TABLE IF NOT EXISTS t(x)")
	until(t, "all have recorded the directories", func() bool {
		for _, n := range c.all() {
			n.membership.mu.RLock()
			known := len(n.membership.dirs.Members)
			n.membership.mu.RUnlock()
			if known != 3 {
				return false
			}
		}
		return true
	})
	c.judge()
	lacks := c.followers()[0].ID()
	saved := t.TempDir()
	keep := func(id, as string) {
		c.stop(id)
		must(t, os.CopyFS(filepath.Join(saved, as), os.DirFS(filepath.Join(c.dir, id))))
	}
	keep(lacks, "lacks")
	leader := c.commit("INSERT INTO t SELECT 'acknowledged' WHERE NOT EXISTS(SELECT * FROM t)")
	has, dead := c.other(leader).ID(), leader.ID()
	keep(has, "has")
	c.stop(dead)

	dir := filepath.Join(c.dir, has)
	other := filepath.Join(c.dir, lacks)
	remove := func(part string) func() {
		return func() { must(t, os.RemoveAll(filepath.Join(dir, part))) }
	}
	from := func(source, part string) func() {
		return func() {
			remove(part)()
			info, err := os.Stat(filepath.Join(saved, source, part))
			must(t, err)
			if info.IsDir() {
				must(t, os.CopyFS(filepath.Join(dir, part), os.DirFS(filepath.Join(saved, source, part))))
				return
			}
			p, err := os.ReadFile(filepath.Join(saved, source, part))
			must(t, err)
			must(t, os.WriteFile(filepath.Join(dir, part), p, 0o600))
		}
	}
	type start struct {
		id, dir, address string // "" means the usual one
		peers            bool
	}
	for _, test := range []struct {
		name   string
		change func()
		start  start
		refuse string // in the error of Open; "" if the node starts
	}{
		{"another ID, empty", remove(""), start{id: "d"}, ""},
		{"another ID, empty, peers", remove(""), start{id: "d", peers: true}, ""},
		{"empty", remove(""), start{}, ""},
		{"empty, peers", remove(""), start{peers: true}, ""},
		{"no raft", remove("raft"), start{}, "lost raft's log"},
		{"no raft, peers", remove("raft"), start{peers: true}, "lost raft's log"},
		{"no segments", func() {
			logs, err := filepath.Glob(filepath.Join(dir, "raft", "*.seg"))
			must(t, err)
			for _, name := range logs {
				must(t, os.Remove(name))
			}
		}, start{peers: true}, "raft"},
		{"raft of another member", from("lacks", "raft"), start{}, "belongs to another directory"},
		{"no node.json", remove("node.json"), start{peers: true}, "node.json is missing"},
		{"node.json of another member", from("lacks", "node.json"), start{}, "belongs to node"},
		{"only data", func() { remove("raft")(); remove("node.json")() }, start{peers: true}, "belongs to another directory"},
		{"data of another member", from("lacks", "data"), start{}, "belongs to another directory"},
		{"mark of another member", from("lacks", markFile), start{}, "belongs to another directory"},
		{"the directory of another member", remove(""), start{dir: other}, "belongs to node"},
		{"the address of another member", func() {}, start{address: c.addrs[lacks]}, ""},
	} {
		t.Run(strings.ReplaceAll(test.name, " ", "-"), func(t *testing.T) {
			c.t = t
			for id, source := range map[string]string{has: "has", lacks: "lacks"} {
				must(t, os.RemoveAll(filepath.Join(c.dir, id)))
				must(t, os.CopyFS(filepath.Join(c.dir, id), os.DirFS(filepath.Join(saved, source))))
			}
			test.change()
			o := c.options(has)
			if test.start.id != "" {
				o.ID = test.start.id
				o.Dir = filepath.Join(t.TempDir(), o.ID)
				o.Peers = nil
				if test.start.peers {
					o.Peers = map[string]string{o.ID: o.Listen, dead: c.addrs[dead], lacks: c.addrs[lacks]}
				}
			} else if !test.start.peers {
				o.Peers = nil
			}
			if test.start.dir != "" {
				o.Dir = test.start.dir
			}
			if test.start.address != "" {
				o.Listen, o.Advertise = test.start.address, test.start.address
			}
			tried.Clear()
			if test.start.address == "" && test.start.dir == "" {
				c.start(lacks)
				defer c.stop(lacks)
			}
			n, err := Open(o)
			if test.refuse != "" {
				if err == nil {
					n.Close()
				}
				if err == nil || !strings.Contains(err.Error(), test.refuse) {
					t.Errorf("got %v, want an error with %q", err, test.refuse)
				}
				return
			}
			must(t, err)
			defer n.Close()
			until(t, "elections without the acknowledged commit", func() bool {
				for _, m := range append(c.all(), n) {
					if m.raft.State() == raft.Leader {
						t.Fatalf("%s leads without an acknowledged commit", m.ID())
					}
				}
				id := lacks
				if test.start.address != "" {
					id = has
				}
				count, ok := tried.Load(c.addrs[id])
				if test.start.address != "" {
					count, ok = tried.Load(test.start.address)
				}
				return ok && count.(*atomic.Int64).Load() >= 6
			})
		})
	}
	c.t = t
	for id, source := range map[string]string{has: "has", lacks: "lacks"} {
		must(t, os.RemoveAll(filepath.Join(c.dir, id)))
		must(t, os.CopyFS(filepath.Join(c.dir, id), os.DirFS(filepath.Join(saved, source))))
		c.start(id)
	}
	var got string
	until(t, "a leader that answers", func() bool {
		return open(t, c.leader(), "db").QueryRowContext(t.Context(), "SELECT count(*) FROM t").Scan(&got) == nil
	})
	if got != "1" {
		t.Errorf("%s rows", got)
	}
}

// TestOlderLog: a node does not start with an older copy of raft's log, nor with a log whose snapshots are
// lost, nor with one that has other entries.
//
// Promise: replica/older-log-refused
func TestOlderLog(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1, Options{Election: 100 * time.Millisecond}, noBug)
	dir := filepath.Join(c.dir, "a", "raft")
	copies := t.TempDir()
	save := func(as string) {
		c.stop("a")
		must(t, os.CopyFS(filepath.Join(copies, as), os.DirFS(dir)))
	}
	use := func(as string) {
		must(t, os.RemoveAll(dir))
		must(t, os.CopyFS(dir, os.DirFS(filepath.Join(copies, as))))
	}
	execAll(t, open(t, c.leader(), "db"), "CREATE TABLE t(x)")
	save("old")
	c.start("a")
	execAll(t, open(t, c.leader(), "db"), "INSERT INTO t VALUES(1)")
	save("new")
	c.start("a")
	execAll(t, open(t, c.leader(), "db"), "INSERT INTO t VALUES(2)")
	must(t, c.leader().raft.Snapshot().Error())
	execAll(t, open(t, c.leader(), "db"), "INSERT INTO t VALUES(3)")
	save("snapshot")
	refused := func(as, want string) {
		t.Helper()
		use(as)
		n, err := Open(c.options("a"))
		if err == nil {
			n.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "AcceptLoss") || !strings.Contains(err.Error(), "new member") {
			t.Errorf("%s: got %v, want an error with %q and the remedy", as, err, want)
		}
	}
	refused("old", "older copy")
	refused("new", "older copy")
	// One that differs in one thing only.
	altered := func(as string, alter func(store *raftlog.Store, last uint64) error) {
		t.Helper()
		use("snapshot")
		store, err := raftlog.Open(dir, raftlog.Options{})
		must(t, err)
		last, err := store.LastIndex()
		must(t, errors.Join(err, alter(store, last), store.Close()))
		must(t, os.CopyFS(filepath.Join(copies, as), os.DirFS(dir)))
	}
	altered("shorter", func(store *raftlog.Store, last uint64) error { return store.DeleteRange(last, last) })
	refused("shorter", "ends at entry")
	altered("earlier", func(store *raftlog.Store, _ uint64) error {
		term, err := store.GetUint64([]byte("CurrentTerm"))
		return errors.Join(err, store.SetUint64([]byte("CurrentTerm"), term-1))
	})
	refused("earlier", "is of term")
	// Another log of the same length: a member that was cut off, and whose last entry was replaced.
	altered("other", func(store *raftlog.Store, last uint64) error {
		var l raft.Log
		err := errors.Join(store.GetLog(last, &l), store.DeleteRange(last, last))
		l.Term++
		return errors.Join(err, store.StoreLogs([]*raft.Log{&l}))
	})
	refused("other", "replaced by another")
	altered("no snapshots", func(store *raftlog.Store, last uint64) error {
		first, err := store.FirstIndex()
		return errors.Join(err, store.DeleteRange(first, last-1), os.RemoveAll(filepath.Join(dir, "snapshots")))
	})
	refused("no snapshots", "snapshots were lost")
	use("new")
	logs, err := filepath.Glob(filepath.Join(dir, "*.seg"))
	must(t, err)
	p, err := os.ReadFile(logs[0])
	must(t, err)
	p[len(bytes.TrimRight(p, "\x00"))/2] ^= 1
	must(t, os.WriteFile(logs[0], p, 0o600))
	must(t, os.CopyFS(filepath.Join(copies, "damaged"), os.DirFS(dir)))
	refused("damaged", "damaged")
	use("snapshot")
	c.start("a")
	if got := value(t, open(t, c.leader(), "db"), "SELECT count(*) FROM t"); got != "3" {
		t.Errorf("%s rows", got)
	}
}
