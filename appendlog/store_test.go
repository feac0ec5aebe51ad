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
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/loghook"
	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/powercut"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// memStore is a directory in memory on a simulated disk, whose power can be cut. It fails
// on request.
type memStore struct {
	mu      sync.Mutex
	live    map[string]*memFile // the content that the program sees
	disk    powercut.Trace      // the requests to the disk
	fault   func(memCall) memFault
	calls   map[string]int // by operation
	gateErr error          // the results of syncs that a gate releases
	direct  bool           // files can bypass the page cache
}

// memCall is a call that can be made to fail.
type memCall struct {
	op   string // create, open, rename, remove, list, dirsync, read, write, truncate, sync, close, mark write, mark sync
	name string
	n    int // the number of earlier calls of this operation
	data int // bytes to write
}

// memFault is the failure of a call: with err, after written bytes of a write.
type memFault struct {
	err     error
	written int
	lost    bool // a failed sync drops the data that was to be written, as Linux does
	left    bool // a sync reports success and is left out
}

type memFile struct {
	store  *memStore
	name   string
	number int // on the disk
	data   []byte
	direct bool
}

// memDirect is memStore.direct of new stores.
var memDirect bool

func newMemStore() *memStore {
	return &memStore{live: map[string]*memFile{}, calls: map[string]int{}, direct: memDirect}
}

// call counts an operation and returns its fault, if any. The caller holds mu.
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

// ask records a request to the disk, and returns its number. The caller holds mu.
func (s *memStore) ask(op powercut.Op) int64 {
	s.disk.Ops = append(s.disk.Ops, op)
	return int64(len(s.disk.Ops) - 1)
}

// synced records a sync of a file, or of the directory. The caller holds mu.
func (s *memStore) synced(file int, dir string) {
	s.ask(powercut.Op{Kind: powercut.End, Off: s.ask(powercut.Op{Kind: powercut.Begin, File: file, Name: dir})})
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
	return s.create(name), nil
}

func (s *memStore) create(name string) *memFile {
	f := &memFile{store: s, name: name, number: len(s.disk.Files)}
	s.disk.Files = append(s.disk.Files, name)
	s.live[name] = f
	s.ask(powercut.Op{Kind: powercut.Create, File: f.number, Name: name})
	return f
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

func (s *memStore) Rename(from, to string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.call("rename", from, 0).err; err != nil {
		return err
	}
	f := s.live[from]
	delete(s.live, from)
	f.name, s.live[to] = to, f
	s.ask(powercut.Op{Kind: powercut.Rename, Name: from, To: to})
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
	delete(s.live, name)
	s.ask(powercut.Op{Kind: powercut.Unlink, Name: name})
	return nil
}

func (s *memStore) Sync() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.call("dirsync", "", 0); f.err != nil || f.left {
		return f.err
	}
	s.synced(0, ".")
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

// op returns a different name for an operation on the end mark.
func (f *memFile) op(name string) string {
	if _, ok := segmentIndex("", f.name); !ok && strings.HasSuffix(f.name, markSuffix) {
		return "mark " + name
	}
	return name
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	const block = loghook.BlockSize
	if f.direct && (off%block != 0 || len(p)%block != 0 || !sys.Aligned(p, block)) {
		return 0, &fs.PathError{Op: "write", Path: f.name, Err: syscall.EINVAL}
	}
	fault := f.store.call(f.op("write"), f.name, len(p))
	if fault.err != nil || fault.written > 0 {
		p = p[:min(fault.written, len(p))]
	}
	f.write(p, off)
	return len(p), fault.err
}

func (f *memFile) write(p []byte, off int64) {
	if len(p) == 0 {
		return
	}
	if grow := off + int64(len(p)) - int64(len(f.data)); grow > 0 {
		f.data = append(f.data, make([]byte, grow)...)
	}
	copy(f.data[off:], p)
	f.store.ask(powercut.Op{Kind: powercut.Write, File: f.number, Off: off, Data: bytes.Clone(p)})
}

func (f *memFile) Truncate(size int64) error {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	if err := f.store.call("truncate", f.name, 0).err; err != nil {
		return err
	}
	f.data = append(f.data[:min(size, int64(len(f.data)))], make([]byte, max(0, size-int64(len(f.data))))...)
	f.store.ask(powercut.Op{Kind: powercut.Truncate, File: f.number, Off: size})
	return nil
}

func (f *memFile) Sync(bool) error {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	fault := f.store.call(f.op("sync"), f.name, 0)
	switch {
	case fault.left:
		return nil
	case fault.err == nil:
		f.store.synced(f.number, "")
	case fault.lost:
		f.store.ask(powercut.Op{Kind: powercut.Lose, File: f.number})
	}
	return fault.err
}

func (f *memFile) Uncache() {}

func (f *memFile) Direct(on bool) bool {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	f.direct = on && f.store.direct
	return f.direct
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
	f.direct = false // of the open file, which this store does not tell from the file
	return f.store.call("close", f.name, 0).err
}

// add puts a durable file into the store and replaces a file of that name.
func (s *memStore) add(name string, data []byte) {
	f := s.create(name)
	f.write(data, 0)
	s.synced(f.number, "")
	s.synced(0, ".")
}

// after returns the store after a power cut.
func after(state *powercut.State) *memStore {
	t := newMemStore()
	files := state.Files()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		t.add(name, files[name])
	}
	return t
}

// crash returns a random state after a power cut.
func (s *memStore) crash(rng *rand.Rand) *memStore {
	s.mu.Lock()
	defer s.mu.Unlock()
	return after(s.disk.Random(rng))
}

// restart returns the content that a program finds after it was killed: the page cache.
func (s *memStore) restart() *memStore {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := newMemStore()
	t.direct = s.direct
	t.disk.Ops, t.disk.Files = slices.Clone(s.disk.Ops), slices.Clone(s.disk.Files)
	for name, f := range s.live {
		t.live[name] = &memFile{store: t, name: name, number: f.number, data: bytes.Clone(f.data)}
	}
	return t
}

// openMem opens a log on a store, with few zeros ahead unless the options set their number.
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

// contents returns all records of a log as strings, and checks that their numbers have no
// gap.
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

// TestPastThePageCache runs tests again with files whose writes bypass the page cache, in whole blocks.
func TestPastThePageCache(t *testing.T) {
	ringtest.AsksNoKernel(t)
	memDirect = true
	t.Cleanup(func() { memDirect = false })
	for name, test := range map[string]func(*testing.T){
		"accept": TestAcceptEveryDamage, "accept after a kill": TestKillThenPowerCutAcceptingLoss,
		"damage": TestDamageAgain, "faults": TestFaults, "power cuts": TestPowerCuts, "every power cut": TestEveryPowerCut,
		"kill": TestKillThenPowerCut, "failed disk": TestFailedDisk, "concurrent": TestConcurrent, "withdraw": TestWithdrawFromGroup,
		"ahead": TestAheadIsWrittenOnce, "disk full": TestDiskFullAhead, "failed sync": TestRecoverAfterFailedSync,
		"rotate": TestRotateUnderLoad, "trim": TestTrim, "trim interrupted": TestTrimInterrupted, "beside": TestReadBesideEverything,
	} {
		t.Run(name, test)
	}
}

// TestBlocks appends records of sizes around that of a block, one by one and in groups, and reads them, from the
// log and after it was opened again. Each write must be of whole blocks.
func TestBlocks(t *testing.T) {
	ringtest.AsksNoKernel(t)
	const block = loghook.BlockSize
	sizes := []int{0, 1, block - recordHeaderSize - 8, block - recordHeaderSize, block, block + 1, 3 * block, 1, 2, 70 << 10, 5}
	for _, ahead := range []int{block, 3 * block / 2, 1 << 20} {
		s := newMemStore()
		s.direct = true
		o := Options{Ahead: ahead, SegmentSize: 128 << 10}
		var want []string
		for i := range 3 {
			a := openMem(t, s, o)
			for j, n := range sizes {
				p := strings.Repeat(string(rune('a'+j)), n)
				want = append(want, p, p)
				put(t, a, p)
				if !s.live[segmentName("", a.End().Segment)].direct {
					t.Fatalf("ahead %d, round %d: writes pass through the page cache", ahead, i)
				}
				if _, err := a.AppendBatch([][]byte{[]byte(p)}); err != nil {
					t.Fatal(err)
				}
			}
			if got := contents(t, a); !slices.Equal(got, want) {
				t.Errorf("ahead %d, round %d: wrong records", ahead, i)
			}
			if i == 1 {
				s = s.restart()
				continue
			}
			mustClose(t, a)
			if f := s.live[segmentName("", a.End().Segment)]; int64(len(f.data)) != a.End().Offset {
				t.Errorf("ahead %d, round %d: the closed segment has %d bytes, want %d", ahead, i, len(f.data), a.End().Offset)
			}
		}
	}
}

// TestStoreIsOneStore makes the calls on which a Log relies on the directory and on its
// model in memory.
func TestStoreIsOneStore(t *testing.T) {
	dir, err := openDirStore(t.TempDir(), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]segmentStore{"dir": dir, "mem": newMemStore(), "direct": &memStore{live: map[string]*memFile{}, calls: map[string]int{}, direct: true}} {
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
	if f.Direct(true) {
		b := sys.AlignedBytes(loghook.BlockSize, loghook.BlockSize)
		copy(b, "blocks")
		check("write of a block", writeFull(f, b, loghook.BlockSize))
		for what, err := range map[string]error{
			"offset": writeFull(f, b, 512+1), "length": writeFull(f, b[:100], 0),
		} {
			if !errors.Is(err, syscall.EINVAL) {
				t.Errorf("direct write with a wrong %s: %v", what, err)
			}
		}
		if f.Direct(false) {
			t.Error("writes still bypass the page cache")
		}
		if n, err := f.ReadAt(b[:6], loghook.BlockSize); n != 6 || err != nil || string(b[:6]) != "blocks" {
			t.Errorf("ReadAt = %q, %v", b[:n], err)
		}
		check("write of a byte", writeFull(f, []byte("x"), 1))
	} else {
		t.Log("this file system does not bypass the page cache")
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
