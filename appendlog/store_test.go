// SPDX-License-Identifier: MIT

package appendlog

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// memStore is a directory in memory that knows what a disk would hold: writes
// are on it after a sync, directory entries after a sync of the directory, and
// what is not synced arrives in part or not at all. It fails on demand.
type memStore struct {
	mu      sync.Mutex
	live    map[string]*memFile // what the program sees
	durable map[string]*memFile // what the disk has for certain
	entries []dirOp             // changes of entries that are not synced
	fault   func(memCall) memFault
	calls   map[string]int // by operation
	gateErr error          // how syncs end that a gate lets through
}

// memCall is a call that may be made to fail.
type memCall struct {
	op   string // create, open, rename, remove, list, dirsync, read, write, truncate, sync, close, mark write, mark sync
	name string
	n    int // how many of this operation there were before
	data int // bytes to write
}

// memFault is how a call fails: with err, after written bytes of a write.
type memFault struct {
	err     error
	written int
	lost    bool // a failed sync forgets what was to be written, as Linux does
	left    bool // a sync says that it is done, and is left out
}

type dirOp struct {
	name string
	file *memFile // nil: removed
}

type memFile struct {
	store   *memStore
	name    string
	data    []byte
	disk    []byte     // as of the last sync
	pending []memWrite // since then
}

// memWrite is a write, or with nil data a truncation to off.
type memWrite struct {
	off  int64
	data []byte
}

func newMemStore() *memStore {
	return &memStore{live: map[string]*memFile{}, durable: map[string]*memFile{}, calls: map[string]int{}}
}

// call counts an operation and asks whether it fails. The caller holds mu.
func (s *memStore) call(op, name string, data int) memFault {
	n := s.calls[op]
	s.calls[op]++
	if s.fault == nil {
		return memFault{}
	}
	f := s.fault(memCall{op, name, n, data})
	if f.err != nil {
		f.err = &fs.PathError{Op: op, Path: name, Err: f.err}
	}
	return f
}

func (s *memStore) List() ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.live)), s.call("list", "", 0).err
}

func (s *memStore) Create(name string) (segmentFile, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.call("create", name, 0).err; err != nil {
		return nil, err
	}
	f := &memFile{store: s, name: name}
	s.enter(name, f)
	return f, nil
}

func (s *memStore) Open(name string, _ bool) (segmentFile, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.call("open", name, 0).err; err != nil {
		return nil, err
	}
	f := s.live[name]
	if f == nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return f, nil
}

// enter changes an entry. The caller holds mu.
func (s *memStore) enter(name string, f *memFile) {
	if f == nil {
		delete(s.live, name)
	} else {
		s.live[name] = f
	}
	s.entries = append(s.entries, dirOp{name, f})
}

func (s *memStore) Rename(from, to string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.call("rename", from, 0).err; err != nil {
		return err
	}
	f := s.live[from]
	f.name = to
	s.enter(to, f)
	s.enter(from, nil)
	return nil
}

func (s *memStore) Remove(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.call("remove", name, 0).err; err != nil {
		return err
	}
	if s.live[name] == nil {
		return fs.ErrNotExist
	}
	s.enter(name, nil)
	return nil
}

func (s *memStore) Sync() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.call("dirsync", "", 0); f.err != nil || f.left {
		return f.err
	}
	s.durable = maps.Clone(s.live)
	s.entries = nil
	return nil
}

func (s *memStore) Path(name string) string { return name }
func (s *memStore) Close() error            { return nil }

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	if err := f.store.call("read", f.name, 0).err; err != nil {
		return 0, err
	}
	return bytes.NewReader(f.data).ReadAt(p, off)
}

// op names an operation apart when it is one of the end mark.
func (f *memFile) op(name string) string {
	if _, ok := segmentIndex("", f.name); !ok && strings.HasSuffix(f.name, markSuffix) {
		return "mark " + name
	}
	return name
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	fault := f.store.call(f.op("write"), f.name, len(p))
	if fault.err != nil || fault.written > 0 {
		p = p[:min(fault.written, len(p))]
	}
	f.apply(memWrite{off, bytes.Clone(p)})
	return len(p), fault.err
}

// apply changes the file and remembers that the disk lacks it.
func (f *memFile) apply(w memWrite) {
	f.data = w.to(f.data)
	f.pending = append(f.pending, w)
}

// to returns data with the write applied.
func (w memWrite) to(data []byte) []byte {
	if w.data == nil {
		return append(data[:min(w.off, int64(len(data)))], make([]byte, max(0, w.off-int64(len(data))))...)
	}
	if grow := w.off + int64(len(w.data)) - int64(len(data)); grow > 0 {
		data = append(data, make([]byte, grow)...)
	}
	copy(data[w.off:], w.data)
	return data
}

func (f *memFile) Truncate(size int64) error {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	if err := f.store.call("truncate", f.name, 0).err; err != nil {
		return err
	}
	f.apply(memWrite{off: size})
	return nil
}

func (f *memFile) Sync(bool) error {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	fault := f.store.call(f.op("sync"), f.name, 0)
	if fault.left {
		return nil
	}
	if fault.err == nil {
		for _, w := range f.pending {
			f.disk = w.to(f.disk)
		}
	}
	if fault.err == nil || fault.lost {
		f.pending = nil
	}
	return fault.err
}

func (f *memFile) TryLock() (bool, error) { return true, nil }

func (f *memFile) Check() error {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	if f.store.live[f.name] != f {
		return errMoved
	}
	return nil
}

func (f *memFile) Size() (int64, error) {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	return int64(len(f.data)), nil
}

func (f *memFile) Close() error {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	return f.store.call("close", f.name, 0).err
}

// add puts a file with durable content into the store.
func (s *memStore) add(t testing.TB, name string, data []byte) {
	t.Helper()
	f := &memFile{store: s, name: name, data: data, disk: bytes.Clone(data)}
	s.live[name], s.durable[name] = f, f
}

// crash returns what a power cut leaves: of the entries not synced a prefix, of
// the writes not synced any sectors.
func (s *memStore) crash(rng *rand.Rand) *memStore {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := newMemStore()
	names := maps.Clone(s.durable)
	for _, op := range s.entries[:rng.IntN(len(s.entries)+1)] {
		if op.file == nil {
			delete(names, op.name)
		} else {
			names[op.name] = op.file
		}
	}
	for name, f := range names {
		data := f.survive(rng) // may lack what a failed sync forgot
		g := &memFile{store: t, name: name, data: data, disk: bytes.Clone(data)}
		t.live[name], t.durable[name] = g, g
	}
	return t
}

// restart returns what a program finds that was killed: the page cache.
func (s *memStore) restart() *memStore {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := newMemStore()
	copies := map[*memFile]*memFile{}
	get := func(f *memFile) *memFile {
		if f == nil {
			return nil
		}
		if copies[f] == nil {
			copies[f] = &memFile{store: t, name: f.name, data: bytes.Clone(f.data), disk: bytes.Clone(f.disk), pending: slices.Clone(f.pending)}
		}
		return copies[f]
	}
	for name, f := range s.live {
		t.live[name] = get(f)
	}
	for name, f := range s.durable {
		t.durable[name] = get(f)
	}
	for _, op := range s.entries {
		t.entries = append(t.entries, dirOp{op.name, get(op.file)})
	}
	return t
}

const sector = 512

func (f *memFile) survive(rng *rand.Rand) []byte {
	data := bytes.Clone(f.disk)
	chance := []float64{0, 0.1, 0.5, 0.9, 1}[rng.IntN(5)]
	for _, w := range f.pending {
		if w.data == nil {
			if rng.Float64() < chance {
				data = w.to(data)
			}
			continue
		}
		for off := w.off; off < w.off+int64(len(w.data)); {
			end := min((off/sector+1)*sector, w.off+int64(len(w.data)))
			if rng.Float64() < chance {
				data = memWrite{off, w.data[off-w.off : end-w.off]}.to(data)
			}
			off = end
		}
	}
	return data
}

// openMem opens a log on a store, with few zeros ahead when nothing else is
// asked for.
func openMem(t testing.TB, s *memStore, o Options) *Log {
	t.Helper()
	a, err := tryMem(s, o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func tryMem(s *memStore, o Options) (*Log, error) {
	o.Ahead = cmp.Or(o.Ahead, 4096)
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	return openLog(s, o)
}

// put appends strings, one group each.
func put(t testing.TB, a *Log, records ...string) (last Position) {
	t.Helper()
	for _, r := range records {
		var err error
		if last, err = a.Append([]byte(r)); err != nil {
			t.Fatal(err)
		}
	}
	return last
}

// contents returns all records of a log as strings, checking that they
// are numbered without a gap.
func contents(t testing.TB, a *Log) (all []string) {
	t.Helper()
	var last Position
	for r, err := range a.Records(Position{}) {
		if err != nil {
			t.Fatal(err)
		}
		if last.Seq != 0 && r.Seq != last.Seq+1 {
			t.Fatalf("record %d follows record %d", r.Seq, last.Seq)
		}
		last = r.Position
		all = append(all, string(r.Data))
	}
	return all
}

func mustClose(t testing.TB, c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

// numbered returns the strings "prefix 0", "prefix 1"…
func numbered(prefix string, n int) []string {
	s := make([]string, n)
	for i := range s {
		s[i] = fmt.Sprintf("%s %d", prefix, i)
	}
	return s
}

// TestStoreIsOneStore runs the calls that a Log relies on over the
// directory and over its twin in memory.
func TestStoreIsOneStore(t *testing.T) {
	dir, err := openDirStore(t.TempDir(), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]segmentStore{"dir": dir, "mem": newMemStore()} {
		t.Run(name, func(t *testing.T) { testStore(t, s) })
	}
}

func testStore(t *testing.T, s segmentStore) {
	f, err := s.Create("one")
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	check("write", writeFull(f, []byte("hello"), 3))
	check("sync", f.Sync(true))
	check("data sync", f.Sync(false))
	check("truncate", f.Truncate(6))
	if n, err := f.Size(); n != 6 || err != nil {
		t.Errorf("Size = %d, %v, want 6", n, err)
	}
	b := make([]byte, 10)
	if n, err := f.ReadAt(b, 0); n != 6 || err != io.EOF || string(b[:n]) != "\x00\x00\x00hel" {
		t.Errorf("ReadAt = %q, %v", b[:n], err)
	}
	check("close", f.Close())
	check("rename", s.Rename("one", "two"))
	check("directory sync", s.Sync())
	if _, err := s.Open("one", false); !os.IsNotExist(err) {
		t.Errorf("the old name opens: %v", err)
	}
	f, err = s.Open("two", true)
	check("open", err)
	if ok, err := f.TryLock(); !ok || err != nil {
		t.Errorf("TryLock = %v, %v", ok, err)
	}
	check("the name", f.Check())
	check("close", f.Close())
	if names, err := s.List(); !slices.Contains(names, "two") || slices.Contains(names, "one") {
		t.Errorf("List = %v, %v", names, err)
	}
	f, err = s.Open("two", true)
	check("open", err)
	check("remove", s.Remove("two"))
	if err := f.Check(); !errors.Is(err, errMoved) {
		t.Errorf("Check of a file that was removed: %v", err)
	}
	check("close", f.Close())
	check("close", s.Close())
}
