// SPDX-License-Identifier: MIT

package replica

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
)

// copied is a database as the states of feeds make it: each follows the one before by the pages that changed.
type copied struct {
	txid  uint64
	pages [][]byte
}

// follow takes the newest state. It compares all pages with the database's, and Read compares those with its checksum. whole
// reports that the pages that changed were not known.
func (c *copied) follow(t *testing.T, n *Node, name string) (whole bool, err error) {
	return whole, n.Feed().Read(t.Context(), name, c.txid, func(txid uint64, pageSize int, pages uint32, changed []uint32, page func(uint32) ([]byte, error)) error {
		if txid < c.txid {
			return fmt.Errorf("transaction %d comes after %d", txid, c.txid)
		}
		whole = changed == nil
		had := len(c.pages)
		if had > int(pages) {
			c.pages = c.pages[:pages]
		}
		for pgno := uint32(1); pgno <= pages; pgno++ {
			p, err := page(pgno)
			if err != nil {
				return err
			}
			_, differs := slices.BinarySearch(changed, pgno)
			switch {
			case int(pgno) > len(c.pages):
				c.pages = append(c.pages, bytes.Clone(p))
			case whole || differs || int(pgno) > had:
				c.pages[pgno-1] = bytes.Clone(p)
			case !bytes.Equal(c.pages[pgno-1], p):
				return fmt.Errorf("page %d changed between the transactions %d and %d, and is not in %v", pgno, c.txid, txid, changed)
			}
		}
		c.txid = txid
		return nil
	})
}

// TestFeed follows a database that is written, becomes smaller, and is deleted, while the leadership moves and all nodes are
// started again. A new leader knows which pages changed, so no state is taken whole but the first one.
// Promise: replica/backup-continues
func TestFeed(t *testing.T) {
	c := newCluster(t, 3, Options{})
	ctx, cancel := contextFor(t)
	defer cancel()
	var state copied
	const name = "x.db"
	leader := c.leader()
	must(t, leader.Create(ctx, name, CreateOptions{}))
	for round := range 4 {
		leader := c.leader()
		cluster, term, over, err := leader.Feed().Lead(ctx)
		if err != nil || cluster != leader.Status().Cluster || term != leader.Status().Term {
			t.Fatal(cluster, term, err)
		}
		if whole, err := state.follow(t, leader, name); err != nil || whole != (round == 0) {
			t.Fatalf("round %d: the whole database is read: %v; %v", round, whole, err)
		}
		db, err := leader.Open(name)
		must(t, err)
		_, _ = leader.Feed().Changed()
		_, more := leader.Feed().Changed()
		for i, q := range []string{
			"CREATE TABLE IF NOT EXISTS t(x)", "INSERT INTO t VALUES(randomblob(50000))", "INSERT INTO t VALUES(1)",
			"DELETE FROM t WHERE rowid%2=0", "VACUUM", "INSERT INTO t VALUES(randomblob(20000))", "UPDATE t SET x=2", "INSERT INTO t VALUES(randomblob(9000))",
		} {
			_, err := db.ExecContext(ctx, q)
			must(t, err)
			if i%3 == round%3 {
				continue // the next state has two transactions
			}
			if whole, err := state.follow(t, leader, name); err != nil || whole {
				t.Fatalf("%s: whole %v, %v", q, whole, err)
			}
			if pos, err := leader.Position(name); err != nil || pos.Index != state.txid {
				t.Fatalf("%s: at %d, want %v, %v", q, state.txid, pos, err)
			}
		}
		<-more
		if names, _ := leader.Feed().Changed(); !slices.Equal(names, []string{name}) {
			t.Error(names)
		}
		must(t, db.Close())
		if round == 2 {
			for id := range maps.Clone(c.addrs) {
				c.stop(id)
			}
			for id := range c.addrs {
				c.start(id)
			}
		} else {
			must(t, leader.Transfer(ctx, ""))
		}
		<-over
	}
	leader = c.leader()
	must(t, leader.Delete(ctx, name))
	newest, all := leader.Feed().Positions()
	if _, ok := all[name]; ok || newest < state.txid {
		t.Error(newest, all)
	}
	if _, err := state.follow(t, leader, name); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	must(t, leader.Create(ctx, name, CreateOptions{}))
	if whole, err := state.follow(t, leader, name); err != nil || !whole {
		t.Errorf("another database of the name: whole %v, %v", whole, err)
	}
}

// TestChangesBetween compares the pages between two states with a model, in which transactions are forgotten and states are skipped.
// Promise: replica/backup-continues
func TestChangesBetween(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 2))
	var c changes
	var list []*change
	at := uint64(0)
	for range 3 * mostChanges {
		n := &change{db: 1, from: at, at: at + 1 + r.Uint64N(3), pages: 1 + r.Uint32N(20)}
		if r.IntN(1000) == 0 {
			n.from++ // another node's snapshot
			n.at++
		}
		at = n.at
		for range 1 + r.IntN(4) {
			n.pgnos = append(n.pgnos, 1+r.Uint32N(n.pages))
		}
		list = append(list, n)
		c.add("x", n)
	}
	if len(c.queue) > mostChanges || c.numbers > mostNumbers {
		t.Errorf("%d transactions and %d numbers are kept", len(c.queue), c.numbers)
	}
	known, tries := 0, size(400, 2000)
	for range tries {
		i := len(list) - 1 - r.IntN(len(list)/2)
		j := min(len(list)-1, i+r.IntN(5))
		want, least, cut := make(map[uint32]bool), list[i].pages, list[j].pages
		whole := i+1 < len(list)-mostChanges && i < j
		for k := i + 1; k <= j; k++ {
			whole = whole || list[k].from != list[k-1].at
			least, cut = min(least, list[k].pages), min(cut, list[k].pages)
			for _, pgno := range list[k].pgnos {
				want[pgno] = true
			}
		}
		got := c.between(1, list[i].at, list[j].at)
		if whole != (got == nil) {
			t.Fatalf("from %d to %d of %d: %v", i, j, len(list), got)
		}
		if whole {
			continue
		}
		known++
		for pgno := cut + 1; pgno <= list[j].pages; pgno++ { // cut off, and added again
			want[pgno] = true
		}
		for pgno := range want {
			if _, ok := slices.BinarySearch(got, pgno); !ok && pgno <= list[j].pages {
				t.Fatalf("from %d to %d: %v lacks %d", i, j, got, pgno)
			}
		}
		for _, pgno := range got {
			if !want[pgno] && pgno <= least {
				t.Fatalf("from %d to %d: %v has %d", i, j, got, pgno)
			}
		}
	}
	if known < tries/4 {
		t.Errorf("only %d were known", known)
	}
}
