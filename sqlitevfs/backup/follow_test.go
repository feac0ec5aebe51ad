// SPDX-License-Identifier: MIT

package backup

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/superfly/ltx"
)

// agreed are databases on which several processes agree. A process that leads no longer may not know that yet.
type agreed struct {
	mu     sync.Mutex
	index  uint64 // of the newest transaction or deletion
	dbs    map[string]*agreedDatabase
	states map[string]map[ltx.TXID][]byte // of all databases that ever were
	leader int
	term   uint64
	turn   chan struct{}
}

type agreedDatabase struct {
	at      uint64
	pages   [][]byte
	changes []agreedChange
}

type agreedChange struct {
	from, at uint64
	least    uint32 // pages after it
	pages    []uint32
}

// member is a process as the source of a Follower.
type member struct {
	*agreed
	id    int
	names map[string]bool
	more  chan struct{}
	over  chan struct{} // of its leadership
}

func (m *member) Lead(ctx context.Context) (string, uint64, <-chan struct{}, error) {
	for {
		m.mu.Lock()
		turn := m.turn
		if m.leader == m.id {
			defer m.mu.Unlock()
			m.over = make(chan struct{})
			return "c", m.term, m.over, nil
		}
		m.mu.Unlock()
		select {
		case <-turn:
		case <-ctx.Done():
			return "", 0, nil, ctx.Err()
		}
	}
}

func (m *member) Positions() (uint64, map[string]uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make(map[string]uint64)
	for name, d := range m.dbs {
		all[name] = d.at
	}
	return m.index, all
}

func (m *member) Changed() (names []string, more <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	names = slices.Collect(maps.Keys(m.names))
	clear(m.names)
	if m.more == nil {
		m.more = make(chan struct{})
	}
	return names, m.more
}

func (m *member) Read(_ context.Context, name string, since uint64, fn func(uint64, int, uint32, []uint32, func(uint32) ([]byte, error)) error) error {
	m.mu.Lock()
	d := m.dbs[name]
	if d == nil {
		m.mu.Unlock()
		return fs.ErrNotExist
	}
	at, pages := d.at, slices.Clone(d.pages)
	changed, known, least := map[uint32]bool{}, since == at, uint32(len(pages))
	for _, c := range d.changes {
		if c.at <= since {
			continue
		}
		known = known || c.from <= since
		least = min(least, c.least)
		for _, n := range c.pages {
			if int(n) <= len(pages) {
				changed[n] = true
			}
		}
	}
	m.mu.Unlock()
	var list []uint32
	if known {
		for n := least + 1; int(n) <= len(pages); n++ {
			changed[n] = true
		}
		list = slices.AppendSeq([]uint32{}, maps.Keys(changed))
		slices.Sort(list)
	}
	return fn(at, 512, uint32(len(pages)), list, func(n uint32) ([]byte, error) { return pages[n-1], nil })
}

// change makes a transaction of a database, creates it, or deletes it.
func (a *agreed) change(r *rand.Rand, all []*member) {
	a.mu.Lock()
	defer a.mu.Unlock()
	name := fmt.Sprintf("dir/%d.db", r.IntN(4))
	a.index += 1 + r.Uint64N(3) // others are of what no database has
	d := a.dbs[name]
	switch {
	case d == nil:
		d = &agreedDatabase{at: a.index, pages: make([][]byte, 1+r.IntN(3))}
		for i := range d.pages {
			d.pages[i] = randomPage(r)
		}
		a.dbs[name] = d
	case r.IntN(30) == 0:
		delete(a.dbs, name)
		d = nil
	default:
		c := agreedChange{from: d.at, at: a.index}
		if len(d.pages) > 3 && r.IntN(4) == 0 {
			d.pages = d.pages[:len(d.pages)-r.IntN(3)]
		} else {
			for range r.IntN(3) {
				d.pages = append(d.pages, make([]byte, 512)) // it need not be written
			}
		}
		c.least = uint32(len(d.pages))
		for range 1 + r.IntN(3) {
			n := r.IntN(len(d.pages))
			d.pages[n] = randomPage(r)
			c.pages = append(c.pages, uint32(n)+1)
		}
		d.at = a.index
		if d.changes = append(d.changes, c); len(d.changes) > 8 {
			d.changes = d.changes[1:]
		}
	}
	if d != nil {
		if a.states[name] == nil {
			a.states[name] = make(map[ltx.TXID][]byte)
		}
		a.states[name][ltx.TXID(d.at)] = bytes.Join(d.pages, nil)
	}
	for _, m := range all {
		if m.names[name] = true; m.more != nil {
			close(m.more)
			m.more = nil
		}
	}
}

func randomPage(r *rand.Rand) []byte {
	p := make([]byte, 512)
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	return p
}

// lead makes another process the leader. It returns how the former one learns of that.
func (a *agreed) lead(all []*member, id int) (deposed func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	former := all[a.leader].over
	all[a.leader].over = nil
	a.leader, a.term = id, a.term+1
	close(a.turn)
	a.turn = make(chan struct{})
	return func() {
		if former != nil {
			close(former)
		}
	}
}

// TestFollow has three processes that agree on databases, of which each leads for a time, also when it is not the leader any more, and
// a target that fails. Every object must lead to a state that was, none is missing, and at last the target has all databases as they
// are.
// Promise: sqlitevfs/backup-follow
func TestFollow(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { t.Parallel(); followed(t, seed) })
	}
}

func followed(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 7))
	a := &agreed{dbs: make(map[string]*agreedDatabase), states: make(map[string]map[ltx.TXID][]byte), turn: make(chan struct{}), term: 1}
	to := newMemory()
	var faults sync.Mutex
	rate := 100
	to.hook = func(string) error {
		faults.Lock()
		defer faults.Unlock()
		if rate > 0 && r.IntN(rate) == 0 {
			return errors.New("the target fails")
		}
		return nil
	}
	var all []*member
	var followers []*Follower
	for id := range 3 {
		all = append(all, &member{agreed: a, id: id, names: make(map[string]bool)})
	}
	for _, m := range all {
		o := Options{Target: to, Interval: 3 * time.Millisecond, Scratch: memoryDir(t), Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
			levels: [levelMax]time.Duration{20 * time.Millisecond, 40 * time.Millisecond, 80 * time.Millisecond}, check: 10 * time.Millisecond}
		f, err := Follow(m, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		followers = append(followers, f)
	}
	random := func(n int) int {
		faults.Lock()
		defer faults.Unlock()
		return r.IntN(n)
	}
	commits := rand.New(rand.NewPCG(seed, 8))
	for range 400 {
		a.change(commits, all)
		switch random(20) {
		case 0, 1:
			id := (a.leader + 1 + random(2)) % 3
			deposed := a.lead(all, id)
			for range random(4) {
				a.change(commits, all)
				time.Sleep(time.Duration(random(4)) * time.Millisecond) // the former one goes on
			}
			deposed()
		case 2, 3, 4, 5:
			time.Sleep(time.Duration(random(6)) * time.Millisecond)
		}
	}
	faults.Lock()
	rate = 0
	faults.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := followers[a.leader].Sync(ctx); err != nil {
		t.Fatal(err)
	}
	for _, f := range followers {
		f.Close()
	}
	a.judge(t, to)
}

// judge compares a target with the databases.
func (a *agreed) judge(t *testing.T, to Target) {
	t.Helper()
	reports, err := Databases(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	had := make(map[string]bool)
	for _, r := range reports {
		had[r.Name] = true
		d := a.dbs[r.Name]
		switch {
		case d == nil && r.Deleted.IsZero():
			t.Errorf("%s was deleted, and the target does not say so", r.Name)
		case d != nil && (!r.Deleted.IsZero() || r.TXID != d.at):
			t.Errorf("%s is at %d, and the target at %d, deleted: %v", r.Name, d.at, r.TXID, r.Deleted)
		}
		if v, err := Verify(t.Context(), to, r.Name); err != nil || len(v.Problems) > 0 {
			t.Errorf("%s: %v %v", r.Name, v.Problems, err)
		}
		a.judgeStream(t, to, r.Name)
		path := filepath.Join(memoryDir(t), "x.db")
		txid, err := Restore(t.Context(), to, r.Name, path, RestoreOptions{})
		if err != nil {
			t.Error(err)
			continue
		}
		if p, err := os.ReadFile(path); err != nil || !bytes.Equal(p, a.states[r.Name][ltx.TXID(txid)]) {
			t.Errorf("%s: the restored state of transaction %d was never there (%v)", r.Name, txid, err)
		}
	}
	for name := range a.dbs {
		if !had[name] {
			t.Errorf("the target lacks %s", name)
		}
	}
}

// judgeStream computes the state after each object, and compares it with the one that was.
func (a *agreed) judgeStream(t *testing.T, to Target, name string) {
	t.Helper()
	files, err := Files(t.Context(), to, name)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		chain := []File{f}
		if f.Min > 1 {
			before, err := plan(slices.DeleteFunc(slices.Clone(files), func(g File) bool { return g.Max >= f.Min }))
			if err != nil || before[len(before)-1].Max != f.Min-1 {
				continue // it was merged, and what it follows was removed
			}
			chain = append(before, f)
		}
		out, err := os.CreateTemp(memoryDir(t), "")
		if err != nil {
			t.Fatal(err)
		}
		_, err = build(t.Context(), to, name, chain, chain, out)
		p, readErr := os.ReadFile(out.Name())
		if out.Close(); err != nil || readErr != nil || !bytes.Equal(p, a.states[name][f.Max]) {
			t.Errorf("%s: the state of transaction %d was never there (%v, %v)", f.Object(name), f.Max, err, readErr)
		}
	}
}

// TestOtherCluster has a target with the databases of another cluster, and a term that is no longer the newest.
// Promise: sqlitevfs/backup-follow
func TestOtherCluster(t *testing.T) {
	a := &agreed{dbs: make(map[string]*agreedDatabase), states: make(map[string]map[ltx.TXID][]byte), turn: make(chan struct{}), term: 1}
	m := &member{agreed: a, names: make(map[string]bool)}
	to := newMemory()
	to.all[clusterObject] = memoryObject{data: []byte("another")}
	a.change(rand.New(rand.NewPCG(1, 1)), []*member{m})
	f, err := Follow(m, Options{Target: to, Scratch: memoryDir(t), Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for f.Stats().Error == "" {
		time.Sleep(time.Millisecond)
	}
	if s := f.Stats(); !strings.Contains(s.Error, "cluster another, and this is c") {
		t.Error(s.Error)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := f.Sync(ctx); !errors.Is(err, errCluster) {
		t.Error(err)
	}
	if len(to.all) != 1 {
		t.Errorf("the target has %d objects", len(to.all))
	}
}

// TestFollowAfterDamage cuts the newest object of a database off in its header. The process that takes over stores all pages with
// the next transaction.
// Promise: sqlitevfs/backup-follow
func TestFollowAfterDamage(t *testing.T) {
	for _, left := range []int{0, ltx.HeaderSize / 2} {
		a := &agreed{dbs: make(map[string]*agreedDatabase), states: make(map[string]map[ltx.TXID][]byte), turn: make(chan struct{}), term: 1}
		m := &member{agreed: a, names: make(map[string]bool)}
		to, r := newMemory(), rand.New(rand.NewPCG(1, 1))
		follow := func() {
			t.Helper()
			f, err := Follow(m, Options{Target: to, Scratch: memoryDir(t), Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := f.Sync(ctx); err != nil {
				t.Fatalf("%d bytes are left: %v", left, err)
			}
		}
		const name = "dir/0.db"
		at := func() uint64 {
			if d := a.dbs[name]; d != nil {
				return d.at
			}
			return 0
		}
		change := func() {
			for was := at(); at() == was || at() == 0; {
				a.change(r, []*member{m})
			}
		}
		for range 3 {
			change()
			follow()
		}
		files, err := Files(t.Context(), to, name)
		if err != nil || len(files) < 2 {
			t.Fatal(files, err)
		}
		last := slices.MaxFunc(files, func(a, b File) int { return cmp.Compare(a.Max, b.Max) }).Object(name)
		o := to.all[last]
		o.data = o.data[:left]
		to.all[last] = o
		change()
		follow()
		path := filepath.Join(memoryDir(t), "x.db")
		txid, err := Restore(t.Context(), to, name, path, RestoreOptions{})
		p, readErr := os.ReadFile(path)
		if err != nil || readErr != nil || txid != at() || !bytes.Equal(p, a.states[name][ltx.TXID(txid)]) {
			t.Errorf("%d bytes are left: restored %d, want %d: %v, %v", left, txid, at(), err, readErr)
		}
	}
}
