// SPDX-License-Identifier: MIT

package backup

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/superfly/ltx"
)

// memory is a Target in memory. hook is called before each step of a call and after it, and may fail it: Delete has a step
// for each object, and Get another one, "Read", in the middle of the object.
type memory struct {
	mu   sync.Mutex
	all  map[string]memoryObject
	hook func(call string) error
	late time.Duration // by how much the times of List are later than the stamps of Put
}

type memoryObject struct {
	data  []byte
	stamp time.Time
}

func newMemory() *memory { return &memory{all: make(map[string]memoryObject)} }

func (m *memory) copy() *memory {
	c := newMemory()
	c.late = m.late
	for name, o := range m.all {
		c.all[name] = o
	}
	return c
}

// step runs fn between two calls of the hook.
func (m *memory) step(call string, fn func() error) error {
	if m.hook != nil {
		if err := m.hook(call); err != nil {
			return err
		}
	}
	m.mu.Lock()
	err := fn()
	m.mu.Unlock()
	if err == nil && m.hook != nil {
		err = m.hook(call + " done")
	}
	return err
}

func (m *memory) List(_ context.Context, prefix string) (all []Object, err error) {
	err = m.step("List", func() error {
		for name, o := range m.all {
			if strings.HasPrefix(name, prefix) {
				all = append(all, Object{Name: name, Size: int64(len(o.data)), Time: o.stamp.Add(m.late), Exact: m.late == 0})
			}
		}
		return nil
	})
	return all, err
}

func (m *memory) Put(_ context.Context, name string, body *io.SectionReader, stamp time.Time) error {
	return m.step("Put", func() error {
		if _, ok := m.all[name]; ok {
			return fs.ErrExist
		}
		data, err := io.ReadAll(body)
		m.all[name] = memoryObject{data, stamp}
		return err
	})
}

func (m *memory) Get(_ context.Context, name string, off, n int64) (r io.ReadCloser, err error) {
	err = m.step("Get", func() error {
		o, ok := m.all[name]
		if !ok {
			return fs.ErrNotExist
		}
		if n < 0 {
			n = int64(len(o.data)) - off
		}
		body := bytes.NewReader(o.data)
		middle := readerFunc(func([]byte) (int, error) {
			if m.hook != nil {
				if err := m.hook("Read"); err != nil {
					return 0, err
				}
			}
			return 0, io.EOF
		})
		r = io.NopCloser(io.MultiReader(io.NewSectionReader(body, off, n/2), middle, io.NewSectionReader(body, off+n/2, n-n/2)))
		return nil
	})
	return r, err
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func (m *memory) Delete(_ context.Context, names ...string) error {
	for _, name := range names {
		if err := m.step("Delete", func() error { delete(m.all, name); return nil }); err != nil {
			return err
		}
	}
	return nil
}

// timeline is a database whose every state is known, and the clock by which it changes.
type timeline struct {
	t      testing.TB
	rand   *rand.Rand
	d      *database
	to     Target
	now    time.Time
	page   int
	pages  [][]byte
	states []state // by transaction, from 1 on
}

type state struct {
	data []byte
	at   time.Time
}

func newTimeline(t testing.TB, to Target, seed uint64) *timeline {
	o := Options{Target: to, Parallel: 1, Scratch: memoryDir(t), Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	o.defaults() // steps of the target have an order
	b := &Backup{opts: o, target: to, log: o.Logger, dbs: make(map[string]*database), wake: make(chan struct{}, 1)}
	b.done = sync.NewCond(&b.mu)
	b.owner.number, b.owner.check = 1, 24*time.Hour
	b.owner.at = time.Now()
	d := &database{b: b, name: "a/x.db", path: filepath.Join(memoryDir(t), "x.db"), pages: make(map[uint32]image)}
	return &timeline{
		t: t, rand: rand.New(rand.NewPCG(seed, 1)), d: d, to: to, page: 512,
		now: time.Now().UTC().Truncate(time.Second).Add(-1000 * time.Hour),
	}
}

// commit makes the next state, after a time, and stores it: all of it, or the pages that have changed.
func (l *timeline) commit(after time.Duration, full bool) {
	l.t.Helper()
	l.now = l.now.Add(after)
	n := ltx.TXID(len(l.states) + 1)
	var old sums
	for i, p := range l.pages {
		old.set(uint32(i)+1, pageSum(uint32(i)+1, p))
	}
	changed := map[int]bool{}
	if k := len(l.pages); k > 4 && l.rand.IntN(4) == 0 {
		l.pages = l.pages[:k-l.rand.IntN(3)]
	}
	for range l.rand.IntN(4) {
		changed[len(l.pages)] = true
		l.pages = append(l.pages, nil)
	}
	if len(l.pages) == 0 {
		changed[0], l.pages = true, make([][]byte, 1)
	}
	changed[l.rand.IntN(len(l.pages))] = true
	var all sums
	for i := range l.pages {
		if changed[i] {
			p := make([]byte, l.page)
			for j := range p {
				p[j] = byte(l.rand.Uint32())
			}
			l.pages[i] = p
		}
		all.set(uint32(i)+1, pageSum(uint32(i)+1, l.pages[i]))
	}
	l.states = append(l.states, state{bytes.Join(l.pages, nil), l.now})
	f := File{Min: n, Max: n, Time: l.now}
	if full = full || n == 1; full {
		f.Level, f.Min = levelSnapshot, 1
	}
	var out bytes.Buffer
	err := encode(&out, f.header(l.page, uint32(len(l.pages)), old.checksum()), func(write func(uint32, []byte) error) (ltx.Checksum, error) {
		for i, p := range l.pages {
			if full || changed[i] {
				if err := write(uint32(i)+1, p); err != nil {
					return 0, err
				}
			}
		}
		return all.checksum(), nil
	})
	if err == nil {
		err = l.d.b.put(l.t.Context(), f.Object(l.d.name), io.NewSectionReader(bytes.NewReader(out.Bytes()), 0, int64(out.Len())), l.now)
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *timeline) compact(queue int) error { return l.d.compact(l.t.Context(), queue, l.now) }

// restore returns the transaction that Restore chooses, whose state it compares.
func (l *timeline) restore(o RestoreOptions) (int, error) {
	l.t.Helper()
	path := filepath.Join(memoryDir(l.t), "restored")
	defer os.RemoveAll(filepath.Dir(path))
	n, err := Restore(l.t.Context(), l.to, l.d.name, path, o)
	if err != nil {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			l.t.Errorf("a file after an error: %v", err)
		}
		return 0, err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		l.t.Fatal(err)
	}
	if !bytes.Equal(data, l.states[n-1].data) {
		l.t.Errorf("the restored transaction %d has other pages", n)
	}
	return int(n), nil
}

// sound checks that the newest state can be restored, each state of the promised time up to the interval of a level, and
// that Verify finds nothing.
func (l *timeline) sound(keep, exact time.Duration) {
	l.t.Helper()
	if n, err := l.restore(RestoreOptions{}); err != nil || n != len(l.states) {
		l.t.Fatalf("restored %d, want %d: %v", n, len(l.states), err)
	}
	for i, s := range l.states {
		at := s.at.Add(time.Millisecond)
		if at.Before(l.now.Add(-keep)) || i+1 < len(l.states) && l.rand.IntN(8) > 0 {
			continue
		}
		n, err := l.restore(RestoreOptions{Before: at})
		if err != nil || n > i+1 || n < i+1 && at.Sub(l.states[n].at) > exact {
			l.t.Fatalf("transaction %d of %d at the time of %d: %v", n, len(l.states), i+1, err)
		}
	}
	if r, err := Verify(l.t.Context(), l.to, l.d.name); err != nil || len(r.Problems) > 0 {
		l.t.Fatalf("Verify: %v, %v", r.Problems, err)
	}
}
