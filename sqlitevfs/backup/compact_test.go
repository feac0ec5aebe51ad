// SPDX-License-Identifier: MIT

package backup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/superfly/ltx"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

var errStopped = errors.New("the target has stopped")

// round runs the compactions in their order, and ends at the first error.
func (l *timeline) round() error {
	for _, queue := range []int{1, 2, 3, queueSnapshot} {
		if err := l.compact(queue); err != nil {
			return err
		}
	}
	return nil
}

// TestCompactionStops stops the target at each step of compaction and retention, before the step and after it, and also
// lets a single step fail. The newest state and the promised older ones can be restored then, and after a second round.
// Promise: sqlitevfs/backup-compaction-stops
func TestCompactionStops(t *testing.T) {
	full := newMemory()
	l := newTimeline(t, full, 3)
	l.d.b.opts.Keep = 3 * time.Hour
	for i := range 30 {
		l.commit(10*time.Minute, i == 17)
		if i%4 == 3 && i < 25 {
			if err := errors.Join(l.compact(1), l.compact(2)); err != nil {
				t.Fatal(err)
			}
		}
		if i == 7 {
			if err := l.compact(3); err != nil {
				t.Fatal(err)
			}
		}
		if i == 8 {
			if err := l.compact(queueSnapshot); err != nil {
				t.Fatal(err)
			}
		}
	}
	l.sound(3*time.Hour, 50*time.Minute)
	steps, stride := 0, ringtest.Rounds(1, 3)
	for i, once := range []bool{false, true} {
		for stop := i * stride / 2; ; stop += stride {
			m := full.copy()
			step := 0
			m.hook = func(string) error {
				if step++; step == stop+1 || step > stop && !once {
					return errStopped
				}
				return nil
			}
			l.to, l.d.b.target, l.d.broken, l.d.full = m, m, 0, false
			err := l.round()
			m.hook = nil
			l.sound(3*time.Hour, 50*time.Minute)
			if l.d.full {
				t.Fatal("a target that fails has led to a snapshot")
			}
			if step <= stop {
				break
			}
			if !errors.Is(err, errStopped) && !(once && err == nil) { // another object was read instead
				t.Fatalf("step %d: %v", stop, err)
			}
			if err := l.round(); err != nil {
				t.Fatal(err)
			}
			l.sound(3*time.Hour, 50*time.Minute)
			steps++
		}
	}
	if steps < 50/stride {
		t.Errorf("%d steps: the rounds did too little", steps)
	}
}

// TestRetention runs days of commits, compactions, restarts and retention. No object stays for ever, and
// none goes that a promised state needs.
// Promise: sqlitevfs/backup-retention
func TestRetention(t *testing.T) {
	seeds := uint64(1)
	if *long {
		seeds = 3
	}
	for seed := range seeds {
		m := newMemory()
		l := newTimeline(t, m, seed)
		most := 0
		for i := range ringtest.Rounds(240, 130) {
			l.commit(time.Duration(1+l.rand.IntN(40))*time.Minute, l.rand.IntN(40) == 0)
			for queue, every := range map[int]int{1: 3, 2: 8, 3: 20, queueSnapshot: 70} {
				if i%every == every-1 {
					if err := l.compact(queue); err != nil {
						t.Fatalf("seed %d, commit %d, level %d: %v", seed, i, queue, err)
					}
				}
			}
			if i%35 == 34 {
				l.sound(l.d.b.opts.Keep, 140*time.Minute)
			}
			most = max(most, len(m.all))
		}
		if n := len(m.all); n > 140 {
			t.Errorf("seed %d: %d objects at the end, %d at most", seed, n, most)
		}
	}
}

// TestDirCompaction is a round in a directory, with a failure of each kind that files have.
func TestDirCompaction(t *testing.T) {
	to := Dir(t.TempDir())
	l := newTimeline(t, to, 7)
	for range 12 {
		l.commit(time.Hour, false)
	}
	if err := errors.Join(l.round(), l.round()); err != nil {
		t.Fatal(err)
	}
	l.sound(24*time.Hour, 12*time.Hour)
	for range 40 {
		l.commit(time.Hour, false)
	}
	// A file that a killed Put has left is no object.
	if err := os.WriteFile(to.path(File{Min: 99, Max: 99}.Object(l.d.name))+".tmp", []byte("cut"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.round(), l.round()); err != nil {
		t.Fatal(err)
	}
	l.now = l.now.Add(time.Hour)
	if err := l.round(); err != nil {
		t.Fatal(err)
	}
	l.sound(24*time.Hour, 41*time.Hour)
	files, err := Files(t.Context(), to, l.d.name)
	if err != nil || len(files) > 10 {
		t.Errorf("%d objects, %v", len(files), err)
	}
}

// TestNothingReplacesDamage damages the object for which others would be removed. They stay, are used, and a snapshot
// is asked for where they do not suffice.
// Promise: sqlitevfs/backup-removes-after-reading
func TestNothingReplacesDamage(t *testing.T) {
	for _, level := range []int{1, levelSnapshot} {
		m := newMemory()
		l := newTimeline(t, m, 11)
		for range 10 {
			l.commit(time.Minute, false)
		}
		queue := 1
		if level == levelSnapshot {
			queue = queueSnapshot
		}
		if err := l.compact(queue); err != nil {
			t.Fatal(err)
		}
		made := 0
		for name, o := range m.all {
			if _, f, _ := parseObject(Object{Name: name}); f.Level == level && f.Max == 10 {
				o.data = append([]byte(nil), o.data...)
				o.data[len(o.data)/2] ^= 4
				m.all[name] = o
				made++
			}
		}
		if made != 1 {
			t.Fatalf("level %d: %d objects", level, made)
		}
		before := len(m.all)
		l.now = l.now.Add(100 * time.Hour)
		if err := l.compact(queue); err == nil {
			t.Errorf("level %d: no error", level)
		}
		if len(m.all) != before {
			t.Errorf("level %d: %d objects, %d before", level, len(m.all), before)
		}
		if n, err := l.restore(RestoreOptions{}); err != nil || n != 10 {
			t.Errorf("level %d: %d, %v", level, n, err)
		}
	}
}

// TestVerifyFinds damages a stream in each way, and expects that Verify finds it and Restore writes no wrong state.
// Promise: sqlitevfs/backup-verify-finds
func TestVerifyFinds(t *testing.T) {
	build := func(seed uint64) (*timeline, *memory) {
		m := newMemory()
		l := newTimeline(t, m, seed)
		for i := range 12 {
			l.commit(time.Minute, false)
			if i == 5 {
				if err := l.compact(1); err != nil {
					t.Fatal(err)
				}
			}
		}
		return l, m
	}
	name := func(level int, lo, hi ltx.TXID) string { return File{Level: level, Min: lo, Max: hi}.Object("a/x.db") }
	_, foreign := build(99)
	edit := func(m *memory, name string, fn func(p []byte) []byte) {
		o := m.all[name]
		o.data = fn(append([]byte(nil), o.data...))
		m.all[name] = o
	}
	damages := map[string]func(m *memory){
		"lost":             func(m *memory) { delete(m.all, name(0, 9, 9)) },
		"lost snapshot":    func(m *memory) { delete(m.all, name(9, 1, 1)) },
		"lost older":       func(m *memory) { delete(m.all, name(0, 3, 3)); delete(m.all, name(1, 2, 6)) },
		"doubled":          func(m *memory) { m.all[name(0, 13, 13)] = m.all[name(0, 12, 12)] },
		"doubled, as more": func(m *memory) { m.all[name(0, 8, 9)] = m.all[name(0, 8, 8)] },
		"reordered": func(m *memory) {
			a, b := name(0, 8, 8), name(0, 9, 9)
			m.all[a], m.all[b] = m.all[b], m.all[a]
		},
		"foreign":             func(m *memory) { m.all[name(0, 9, 9)] = foreign.all[name(0, 9, 9)] },
		"foreign snapshot":    func(m *memory) { m.all[name(9, 1, 1)] = foreign.all[name(9, 1, 1)] },
		"foreign last object": func(m *memory) { m.all[name(0, 12, 12)] = foreign.all[name(0, 12, 12)] },
		"empty":               func(m *memory) { edit(m, name(0, 9, 9), func(p []byte) []byte { return nil }) },
		"grown":               func(m *memory) { edit(m, name(0, 9, 9), func(p []byte) []byte { return append(p, 0) }) },
	}
	l, m := build(5)
	for i := range len(m.all[name(0, 9, 9)].data) {
		if (i < ltx.HeaderSize || i%23 == 0) && i%ringtest.Rounds(1, 4) == 0 {
			damages[fmt.Sprintf("cut at %d", i)] = func(m *memory) {
				edit(m, name(0, 9, 9), func(p []byte) []byte { return p[:i] })
			}
			damages[fmt.Sprintf("changed at %d", i)] = func(m *memory) {
				edit(m, name(0, 9, 9), func(p []byte) []byte { p[i] ^= 1; return p })
			}
		}
	}
	for what, damage := range damages {
		c := m.copy()
		damage(c)
		r, err := Verify(t.Context(), c, l.d.name)
		if err != nil || len(r.Problems) == 0 {
			t.Errorf("%s: not found: %+v, %v", what, r, err)
		}
		l.to = c
		n, err := l.restore(RestoreOptions{}) // compares the state
		if err == nil && n != 12 {
			t.Errorf("%s: restored transaction %d without an error", what, n)
		}
		if what == "lost" && !errors.Is(err, ErrGap) {
			t.Errorf("%s: %v", what, err)
		}
	}
	l.to, l.d.b.target = m, m
	l.commit(time.Minute, true)
	for tx := ltx.TXID(8); tx < 13; tx++ { // only older states need these
		c := m.copy()
		delete(c.all, name(0, tx, tx))
		if r, err := Verify(t.Context(), c, l.d.name); err != nil || len(r.Problems) != 1 {
			t.Errorf("transaction %d is lost: %+v, %v", tx, r, err)
		}
	}
	if r, err := Verify(t.Context(), m, l.d.name); err != nil || len(r.Problems) > 0 {
		t.Errorf("undamaged: %+v, %v", r, err)
	}
}

// TestBefore restores at the time of each commit and between them, while the files of level 0 are there, when some of
// those of a merged file were removed, and when all were.
// Promise: sqlitevfs/backup-point-in-time
func TestBefore(t *testing.T) {
	m := newMemory()
	l := newTimeline(t, m, 2)
	for range 9 {
		l.commit(time.Minute, false)
	}
	check := func(exact bool) {
		t.Helper()
		for i, s := range l.states {
			for _, c := range []struct {
				at   time.Time
				want int
			}{{s.at, i}, {s.at.Add(time.Second), i + 1}} {
				n, err := l.restore(RestoreOptions{Before: c.at})
				if c.want == 0 {
					if !errors.Is(err, ErrNone) {
						t.Errorf("before the first commit: %d, %v", n, err)
					}
				} else if err != nil || n > c.want || exact && n != c.want {
					t.Errorf("transaction %d, want %d: %v", n, c.want, err)
				}
			}
		}
	}
	check(true)
	if err := l.compact(1); err != nil {
		t.Fatal(err)
	}
	check(true)
	deletes := 0
	m.hook = func(call string) error {
		if call == "Delete" {
			if deletes++; deletes > 3 {
				return errStopped
			}
		}
		return nil
	}
	l.now = l.now.Add(time.Hour)
	if err := l.compact(1); !errors.Is(err, errStopped) {
		t.Fatal(err)
	}
	m.hook = nil
	check(false)
	if err := l.compact(1); err != nil || len(m.all) != 2 {
		t.Fatalf("%d objects, %v", len(m.all), err)
	}
	check(false)
}

// TestFlushDuringCompaction commits while a compaction waits for the target. The commit is stored after it.
func TestFlushDuringCompaction(t *testing.T) {
	m := newMemory()
	entered, leave := make(chan bool), make(chan bool)
	m.hook = func(call string) error {
		if call == "Get" {
			select {
			case entered <- true:
				<-leave
			case <-leave:
			}
		}
		return nil
	}
	dir := t.TempDir()
	b := start(t, dir, m, func(o *Options) { o.levels[0] = time.Millisecond })
	db := open(t, filepath.Join(dir, "x.db"), modes[0])
	defer db.Close()
	for i := 0; ; i++ {
		if err := commit(db, i); err != nil {
			t.Fatal(err)
		}
		select {
		case <-entered:
		case <-time.After(20 * time.Millisecond):
			continue
		}
		break
	}
	if err := commit(db, 0); err != nil {
		t.Fatal(err)
	}
	for { // until the flush was due
		b.mu.Lock()
		due := b.dbs["x.db"].again
		b.mu.Unlock()
		if due {
			break
		}
		time.Sleep(time.Millisecond)
	}
	close(leave)
	synced(t, b)
}

// TestLostObject removes an object of a stream while its database is backed up. Compaction finds it, and a snapshot follows.
// Promise: sqlitevfs/backup-lost-object
func TestLostObject(t *testing.T) {
	m := newMemory()
	dir := t.TempDir()
	b := start(t, dir, m, nil)
	path := filepath.Join(dir, "x.db")
	db := open(t, path, modes[2])
	defer db.Close()
	n := 0
	for ; n < 5; n++ {
		if err := commit(db, n); err != nil {
			t.Fatal(err)
		}
		synced(t, b)
	}
	files, err := Files(t.Context(), m, "x.db")
	if err != nil || len(files) < 4 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	if err := m.Delete(t.Context(), files[1].Object("x.db")); err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(t.Context(), m, "x.db", filepath.Join(t.TempDir(), "x"), RestoreOptions{}); !errors.Is(err, ErrGap) {
		t.Errorf("Restore: %v", err)
	}
	b.mu.Lock()
	b.add(b.dbs["x.db"], 1, 0)
	b.mu.Unlock()
	for deadline := time.Now().Add(time.Minute); count(t, m, "x.db", levelSnapshot) < 2; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no snapshot")
		}
	}
	same(t, m, "x.db", path, n)
	if r, err := Verify(t.Context(), m, "x.db"); err != nil || len(r.Problems) != 1 || !strings.Contains(r.Problems[0], ErrGap.Error()) {
		t.Errorf("Verify: %v, %v", r.Problems, err)
	}
}

// TestUnusualChanges has VACUUM to another size of a page, and transactions whose new pages are free at their end, which
// SQLite does not write.
func TestUnusualChanges(t *testing.T) {
	for _, mode := range []string{modes[0], modes[5], modes[7]}[:ringtest.Rounds(3, 1)] {
		m := newMemory()
		dir := t.TempDir()
		b := start(t, dir, m, nil)
		path := filepath.Join(dir, "x.db")
		db := open(t, path, mode)
		n := 0
		run := func(sql string) {
			t.Helper()
			if _, err := db.Exec(sql); err != nil {
				t.Fatal(err)
			}
			synced(t, b)
			if err := commit(db, n); err != nil {
				t.Fatal(err)
			}
			n++
			synced(t, b)
		}
		run("SELECT 1")
		run("PRAGMA page_size = 8192; VACUUM")
		run("CREATE TABLE a(x); CREATE TABLE c(x); INSERT INTO a VALUES(randomblob(100000))")
		run("DELETE FROM a; VACUUM")
		run("BEGIN; INSERT INTO a VALUES(randomblob(900000)); INSERT INTO c VALUES(randomblob(30000)); DELETE FROM a; COMMIT")
		run("BEGIN; INSERT INTO a VALUES(randomblob(500000)); INSERT INTO c VALUES(randomblob(900000)); DELETE FROM a; COMMIT")
		run("BEGIN; INSERT INTO a VALUES(randomblob(1400000)); INSERT INTO c VALUES(randomblob(30000)); DELETE FROM a; COMMIT")
		db.Close()
		synced(t, b)
		same(t, m, "x.db", path, n)
		d := b.dbs["x.db"]
		b.Close()
		d.b.opts.Keep = -time.Hour
		for _, queue := range []int{1, 2, 3, queueSnapshot, 1} {
			if err := d.compact(t.Context(), queue, time.Now().Add(time.Hour)); err != nil {
				t.Fatalf("%s: level %d: %v", mode, queue, err)
			}
		}
		same(t, m, "x.db", path, n)
		if r, err := Verify(t.Context(), m, "x.db"); err != nil || len(r.Problems) > 0 {
			t.Errorf("%s: Verify: %v, %v", mode, r.Problems, err)
		}
	}
}

// TestMemory has databases whose changes do not fit into Options.Memory, while the target refuses objects.
// Promise: sqlitevfs/backup-memory-bound
func TestMemory(t *testing.T) {
	m := newMemory()
	var refuse atomic.Bool
	refuse.Store(true)
	m.hook = func(call string) error {
		if call == "Put" && refuse.Load() {
			return fs.ErrPermission
		}
		return nil
	}
	const bound = 1 << 20
	dir := memoryDir(t)
	names := []string{"a.db", "b.db"}
	var b *Backup
	for round := range 3 {
		if round == 1 {
			b = start(t, dir, m, func(o *Options) { o.Memory = bound })
		}
		for _, name := range names {
			db := open(t, filepath.Join(dir, name), modes[round%2*5])
			for range 15 {
				if err := commit(db, 24); err != nil {
					t.Fatal(err)
				}
			}
			db.Close()
			if round == 0 {
				continue
			}
			if n := b.Stats().Memory; n > 2*bound || n < 0 {
				t.Fatalf("round %d: %d bytes", round, n)
			}
		}
	}
	for deadline := time.Now().Add(time.Minute); b.counts.failures.Load() < 4 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if n := b.Stats().Memory; n > 2*bound || n < 0 {
		t.Fatalf("%d bytes", n)
	}
	if s := b.Stats(); s.Behind != len(names) || s.Lag == 0 || s.Failures == 0 || s.Error == "" {
		t.Errorf("%+v", s)
	}
	refuse.Store(false)
	synced(t, b)
	for _, name := range names {
		same(t, m, name, filepath.Join(dir, name), 45)
	}
	if s := b.Stats(); s.Memory != 0 || s.Behind != 0 || s.Lag != 0 || s.Error != "" {
		t.Errorf("%+v", s)
	}
}

// TestRate compares the time of objects with Options.BytesPerSecond.
func TestRate(t *testing.T) {
	m := newMemory()
	l := newTimeline(t, m, 1)
	l.d.b.limit.rate = 100_000
	start := time.Now()
	for range 20 {
		l.commit(time.Minute, true)
	}
	last := m.all[File{Level: levelSnapshot, Min: 1, Max: 20}.Object(l.d.name)]
	sent := int64(l.d.b.counts.bytes.Load()) - int64(len(last.data))
	if took, least := time.Since(start), time.Duration(sent)*time.Second/100_000; took < least {
		t.Errorf("%d bytes in %v, want at least %v", sent, took, least)
	}
}
