// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// memoryFile is a file in memory that counts its writes and fails when asked.
type memoryFile struct {
	vfs.File
	data   []byte
	writes int
	fail   bool
}

func (f *memoryFile) WriteAt(p []byte, off int64) (int, error) {
	if f.writes++; f.fail {
		return 0, io.ErrShortWrite
	}
	if end := int(off) + len(p); end > len(f.data) {
		f.data = append(f.data, make([]byte, end-len(f.data))...)
	}
	return copy(f.data[off:], p), nil
}

// TestFrameWriter makes SQLite's writes in transactions that append frames, change their
// pages, write headers again, and roll back. It compares the file with one that is written
// by single calls, whenever another connection may read it.
// Promise: sqlitevfs/wal-contains-transaction
func TestFrameWriter(t *testing.T) {
	const page = 64
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 7))
		var model, got memoryFile
		w := &frameWriter{keep: seed%2 == 0}
		write := func(p []byte, off int64) {
			model.WriteAt(p, off)
			if n, err := w.writeAt(&got, p, off); n != len(p) || err != nil {
				t.Fatalf("seed %d: %d, %v", seed, n, err)
			}
		}
		equal := func(what string) {
			t.Helper()
			if !bytes.Equal(got.data, model.data) {
				t.Fatalf("seed %d: the file differs after %s", seed, what)
			}
		}
		random := func(n int) []byte {
			p := make([]byte, n)
			for i := range p {
				p[i] = byte(r.Uint32())
			}
			return p
		}
		header := func(last bool) []byte {
			p := random(frameHeaderSize)
			binary.BigEndian.PutUint32(p[4:], 0)
			if last {
				p[7] = 1
			}
			return p
		}
		write(random(walHeaderSize), 0)
		end := int64(walHeaderSize)
		frame := int64(frameHeaderSize + page)
		for range 60 {
			if seed%4 < 2 {
				w.indexUsed(&got)
				equal("the use of the index")
			}
			first, before, others, isNew := end, got.writes, 0, end >= w.high
			count := r.IntN(5) + 1
			for i := range count {
				write(header(i == count-1), end)
				write(random(page), end+frameHeaderSize)
				if i == count-1 {
					equal("a transaction")
				}
				end += frame
				if r.IntN(4) == 0 { // a page that changes again in the transaction
					k := first + frame*r.Int64N((end-first)/frame)
					write(random(page), k+frameHeaderSize)
					equal("a page that changed again")
					others += 2
				}
			}
			if n := got.writes - before - others; isNew && seed%4 < 2 && n > 1 || isNew && n > count {
				t.Fatalf("seed %d: %d writes for %d frames", seed, n, count)
			}
			if p := w.kept(first, end); p != nil && !bytes.Equal(p, model.data[first:end]) {
				t.Fatalf("seed %d: the kept frames differ from the file", seed)
			}
			switch r.IntN(7) {
			case 0: // checksums are written again
				for k := first + frame*r.Int64N((end-first)/frame); k < end; k += frame {
					write(header(false), k)
				}
				equal("headers that are written again")
			case 1: // rollback of a transaction that was written
				end = first
			case 2: // another connection restarts the WAL, and writes
				w.indexUsed(&got)
				model.WriteAt(random(page), walHeaderSize)
				copy(got.data[walHeaderSize:], model.data[walHeaderSize:][:page])
				w.forget(w.keep)
				end = walHeaderSize
			case 3: // a sync in the middle of a frame, as without powersafe overwrite
				write(header(true), end)
				if err := w.flush(&got); err != nil {
					t.Fatal(err)
				}
				equal("a header that was flushed")
				write(random(page), end+frameHeaderSize)
				equal("its page")
				end += frame
			case 4:
				w.forget(r.IntN(2) == 0)
			case 5: // frames of a transaction that is rolled back, while another connection writes
				for i := range int64(r.IntN(3)) {
					write(header(false), end+i*frame)
					write(random(page), end+i*frame+frameHeaderSize)
				}
				w.indexUsed(&got)
				equal("a rollback")
				p := random(page)
				model.WriteAt(p, end)
				got.WriteAt(p, end)
			}
		}
	}
}

// TestTransactionTakesOneWrite counts the writes of transactions: one for each, or one for each frame if
// the writer is not told when the WAL's index is used, and after frame 4062.
func TestTransactionTakesOneWrite(t *testing.T) {
	const page = 512
	for _, watched := range []bool{true, false} {
		var f memoryFile
		w := &frameWriter{}
		off := int64(walHeaderSize)
		frames := func(n int, last bool) int {
			before := f.writes
			if watched {
				w.indexUsed(&f)
			}
			for i := range n {
				head := make([]byte, frameHeaderSize)
				if last && i == n-1 {
					head[7] = 1
				}
				w.writeAt(&f, head, off)
				w.writeAt(&f, make([]byte, page), off+frameHeaderSize)
				off += frameHeaderSize + page
			}
			return f.writes - before
		}
		for _, k := range []struct{ frames, held int }{{1, 1}, {10, 1}, {2, 1}, {1000, 3}, {3039, 7}, {20, 10}, {30, 30}} {
			want := k.held
			if !watched {
				want = k.frames
			}
			if n := frames(k.frames, true); n != want {
				t.Errorf("watched %v: %d writes for %d frames, want %d", watched, n, k.frames, want)
			}
		}
	}
}

func TestFrameWriterFails(t *testing.T) {
	f := memoryFile{fail: true}
	w := &frameWriter{keep: true}
	if n, err := w.writeAt(&f, make([]byte, frameHeaderSize), walHeaderSize); n != frameHeaderSize || err != nil {
		t.Fatal(n, err)
	}
	if n, err := w.writeAt(&f, make([]byte, 512), walHeaderSize+frameHeaderSize); n != 0 || err == nil {
		t.Errorf("the page: %d, %v", n, err)
	}
	if w.kept(walHeaderSize, walHeaderSize+frameHeaderSize+512) != nil {
		t.Error("the frame of a failed write is kept")
	}
	w.writeAt(&f, make([]byte, frameHeaderSize), 4096)
	if w.flush(&f) == nil {
		t.Error("the flush of a header did not fail")
	}
}

func (f *memoryFile) ReadAt(p []byte, off int64) (int, error) {
	if off >= int64(len(f.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memoryFile) Size() (int64, error) { return int64(len(f.data)), nil }

func (f *memoryFile) Truncate(size int64) error {
	f.data = f.data[:size]
	return nil
}

func (f *memoryFile) Sync(vfs.SyncFlag) error { return nil }

func (f *memoryFile) Close() error { return nil }

// TestHeldHeaderIsWrittenFirst makes all other calls that SQLite may make on a WAL while
// the header of a frame is held: the header is in the file by then. If it cannot be
// written, the call fails and does nothing.
func TestHeldHeaderIsWrittenFirst(t *testing.T) {
	const size = walHeaderSize + frameHeaderSize
	head := bytes.Repeat([]byte{7}, frameHeaderSize)
	for what, do := range map[string]func(f *file) error{
		"read": func(f *file) error {
			p := make([]byte, frameHeaderSize)
			_, err := f.ReadAt(p, walHeaderSize)
			if err == nil && !bytes.Equal(p, head) {
				t.Errorf("read: % x", p)
			}
			return err
		},
		"size": func(f *file) error {
			n, err := f.Size()
			if err == nil && n != size {
				t.Errorf("size: %d", n)
			}
			return err
		},
		"truncate": func(f *file) error { return f.Truncate(size) },
		"sync":     func(f *file) error { return f.Sync(0) },
		"close":    func(f *file) error { return f.Close() },
		"write": func(f *file) error {
			_, err := f.WriteAt(make([]byte, 8), 0)
			return err
		},
	} {
		for _, fail := range []bool{false, true} {
			base := &memoryFile{data: make([]byte, walHeaderSize)}
			f := &file{File: base, vfs: &ringVFS{}, fd: -1, flags: vfs.OPEN_WAL, frames: &frameWriter{}}
			if _, err := f.WriteAt(head, walHeaderSize); err != nil || len(base.data) != walHeaderSize {
				t.Fatalf("%d bytes, %v", len(base.data), err)
			}
			base.fail = fail
			if err := do(f); (err != nil) != fail {
				t.Errorf("%s, the header fails: %v: %v", what, fail, err)
			}
			if want := map[bool]int{false: size, true: walHeaderSize}[fail]; len(base.data) != want {
				t.Errorf("%s, the header fails: %v: the file has %d bytes, want %d", what, fail, len(base.data), want)
			}
		}
	}
}

// TestKeptFramesAreThoseOfTheFile writes past the end of the kept frames, and makes a write over
// kept frames fail. The frames must then no longer be kept, because the log would take them for the
// file's content.
func TestKeptFramesAreThoseOfTheFile(t *testing.T) {
	const frame = frameHeaderSize + 64
	for what, spoil := range map[string]func(w *frameWriter, f *memoryFile){
		"over the end": func(w *frameWriter, f *memoryFile) {
			w.writeAt(f, make([]byte, 64), walHeaderSize+2*frame-32)
		},
		"over the start": func(w *frameWriter, f *memoryFile) {
			w.writeAt(f, make([]byte, 64), walHeaderSize-32)
		},
		"a write that fails": func(w *frameWriter, f *memoryFile) {
			f.fail = true
			w.writeAt(f, make([]byte, 64), walHeaderSize+frameHeaderSize)
		},
	} {
		var f memoryFile
		w := &frameWriter{keep: true}
		for i := range int64(2) {
			w.writeAt(&f, make([]byte, frameHeaderSize), walHeaderSize+i*frame)
			w.writeAt(&f, bytes.Repeat([]byte{1}, 64), walHeaderSize+i*frame+frameHeaderSize)
		}
		if p := w.kept(walHeaderSize, walHeaderSize+2*frame); !bytes.Equal(p, f.data[walHeaderSize:]) {
			t.Fatal("the frames are not kept before the write")
		}
		if spoil(w, &f); w.kept(walHeaderSize, walHeaderSize+2*frame) != nil {
			t.Errorf("%s: frames are still kept", what)
		}
	}
}

// TestWALWithoutAKnownEnd asks for the end of commits when the header of the WAL cannot be
// read or is invalid, or when the only commit is incomplete. The end is then unknown, so
// the WAL must be synced instead of the log.
func TestWALWithoutAKnownEnd(t *testing.T) {
	path := dbFile(t)
	c := connect(t, path, "os")
	execSQL(t, c, "PRAGMA page_size=512; PRAGMA journal_mode=WAL; CREATE TABLE t(v)")
	whole, err := os.ReadFile(path + suffixWAL)
	if err != nil {
		t.Fatal(err)
	}
	const frame = frameHeaderSize + 512
	damaged := bytes.Clone(whole)
	damaged[24] ^= 1 // the checksum
	for _, k := range []struct {
		what      string
		data      []byte
		wrote, ok bool
		page      int // bytes of the last page that were written
	}{
		{"a commit", whole, true, true, 512},
		{"an incomplete commit", whole, true, false, 0},
		{"an unreadable header", whole[:walHeaderSize-1], true, false, 512},
		{"an invalid header", damaged, true, false, 512},
		{"a frame that was not written", whole, false, false, 0},
	} {
		f := &memoryFile{data: k.data}
		w := &walFile{base: f, frames: &frameWriter{}}
		last := int64(len(whole)) - frame
		if k.wrote {
			w.wrote(whole[last:last+frameHeaderSize], last)
			if k.page > 0 {
				w.wrote(whole[last+frameHeaderSize:], last+frameHeaderSize)
			}
		}
		h, end, ok := w.written()
		if ok != k.ok || ok && (end != last+frame || h.PageSize != 512) {
			t.Errorf("%s: page size %d, end %d, %v", k.what, h.PageSize, end, ok)
		}
	}
}

// TestFilesAreWhole copies the database and the WAL after each commit with
// synchronous=NORMAL, of transactions that spill and change pages twice, as after a kill.
// SQLite finds every row.
// Promise: sqlitevfs/wal-contains-transaction
func TestFilesAreWhole(t *testing.T) {
	for _, name := range []string{Name, "ringside-log"} {
		path := dbFile(t)
		c := connect(t, path, name)
		execSQL(t, c, "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA cache_size=5; CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB); PRAGMA wal_autocheckpoint=0")
		rows := 0
		for i := range 8 {
			execSQL(t, c, "BEGIN")
			for range 20 {
				rows++
				execSQL(t, c, fmt.Sprintf("INSERT INTO t VALUES(%d, randomblob(900))", rows))
			}
			execSQL(t, c, "UPDATE t SET v=randomblob(950) WHERE id%3=0; UPDATE t SET v=randomblob(900) WHERE id%3=0")
			if i%4 == 3 {
				execSQL(t, c, "ROLLBACK")
				rows -= 20
				continue
			}
			execSQL(t, c, "COMMIT")
			copied := filepath.Join(t.TempDir(), "copy.db")
			for _, suffix := range []string{"", suffixWAL} {
				p, err := os.ReadFile(path + suffix)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(copied+suffix, p, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			stock := connect(t, copied, "os")
			wantQuery(t, stock, "SELECT count(*) FROM t", fmt.Sprint(rows))
			wantQuery(t, stock, "PRAGMA integrity_check", "ok")
			stock.Close()
		}
	}
}

// TestPageInTwoParts writes a page as SQLite does without powersafe overwrite. The second part has the size
// of a header, and is written at once.
func TestPageInTwoParts(t *testing.T) {
	var f memoryFile
	w := &frameWriter{}
	w.indexUsed(&f)
	head := make([]byte, frameHeaderSize)
	head[7] = 1
	w.writeAt(&f, head, walHeaderSize)
	w.writeAt(&f, make([]byte, 512-frameHeaderSize), walHeaderSize+frameHeaderSize)
	if err := w.flush(&f); err != nil {
		t.Fatal(err)
	}
	f.fail = true
	if n, err := w.writeAt(&f, make([]byte, frameHeaderSize), walHeaderSize+512); err == nil || n != 0 {
		t.Errorf("the second part could not be written: %d, %v", n, err)
	}
}

// TestLostFramesAreNotContinued makes the write of held frames fail when the WAL's index is used. All writes
// are then refused, because frames before them are missing in the file. The next transaction uses the index
// first, and may write anywhere.
// Promise: sqlitevfs/wal-contains-transaction
func TestLostFramesAreNotContinued(t *testing.T) {
	const frame = frameHeaderSize + 512
	var f memoryFile
	w := &frameWriter{}
	head := make([]byte, frameHeaderSize)
	w.indexUsed(&f)
	w.writeAt(&f, head, walHeaderSize)
	w.writeAt(&f, make([]byte, 512), walHeaderSize+frameHeaderSize)
	f.fail = true
	w.indexUsed(&f)
	f.fail = false
	for what, k := range map[string]struct {
		size int
		off  int64
	}{
		"a frame behind it": {frameHeaderSize, walHeaderSize + frame},
		"its page again":    {512, walHeaderSize + frameHeaderSize},
	} {
		if n, err := w.writeAt(&f, make([]byte, k.size), k.off); err == nil || n != 0 {
			t.Errorf("%s: %d, %v", what, n, err)
		}
	}
	w.indexUsed(&f)
	if n, err := w.writeAt(&f, head, walHeaderSize+frame); err != nil {
		t.Errorf("the next transaction: %d, %v", n, err)
	}
}

// TestFramesOfARollback makes a transaction spill pages, and rolls it back while some of its frames are
// held. Another connection then writes in their place. The first connection must not write there
// afterwards, and the disk may be full at the rollback. It also counts the writes of a large commit.
// Promise: sqlitevfs/wal-contains-transaction
func TestFramesOfARollback(t *testing.T) {
	for what, full := range map[string]bool{"disk": false, "full disk": true} {
		t.Run(what, func(t *testing.T) {
			name, r := record(t, Options{})
			var writes int
			var fail error
			r.fail = func(event string) error {
				if event != "write wal" {
					return nil
				}
				writes++
				return fail
			}
			path := dbFile(t)
			a := connect(t, path, name)
			execSQL(t, a, "PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0; CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)")
			b := connect(t, path, name)
			const insert = "INSERT INTO t(v) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<50) SELECT randomblob(3000) FROM n"
			execSQL(t, a, insert)
			writes = 0
			execSQL(t, a, insert)
			if writes != 1 {
				t.Errorf("a commit of 50 pages made %d writes", writes)
			}
			execSQL(t, a, "PRAGMA cache_size=5; UPDATE t SET v=randomblob(700)")
			held := false
			for i := range 20 {
				// No page is added, so the first page does not change and the rollback reads no frame.
				execSQL(t, a, fmt.Sprintf("BEGIN; UPDATE t SET v=randomblob(700) WHERE id<%d", 50+2*i))
				if full {
					fail = syscall.ENOSPC
				}
				writes = 0
				execSQL(t, a, "ROLLBACK")
				held = held || writes > 0
				fail = nil
				execSQL(t, b, "UPDATE t SET v=randomblob(600) WHERE id<20")
				wantQuery(t, a, "SELECT count(*) FROM t WHERE length(v)=600", "19")
				wantQuery(t, a, "PRAGMA integrity_check", "ok")
				wantQuery(t, b, "PRAGMA integrity_check", "ok")
			}
			if !held {
				t.Error("no frames were held at a rollback")
			}
			wantQuery(t, connect(t, path, "os"), "PRAGMA integrity_check", "ok")
		})
	}
}

// TestReadThatCannotWriteHeldFrames reads pages of a transaction that spilled, while a full disk does not
// take the frames that are held. SQLite does not roll back after each failed read. If the transaction is
// committed later, none of its frames may be missing.
// Promise: sqlitevfs/wal-contains-transaction
func TestReadThatCannotWriteHeldFrames(t *testing.T) {
	for what, sql := range map[string]string{
		"check":     "PRAGMA integrity_check",
		"statement": "UPDATE t SET v=zeroblob(500+id%2) WHERE id%2=0 AND v IS NOT NULL",
	} {
		t.Run(what, func(t *testing.T) {
			name, r := record(t, Options{})
			var refused int
			var fail error
			r.fail = func(event string) error {
				if event != "write wal" || fail == nil {
					return nil
				}
				refused++
				return vfs.SystemError(fail, sqlite3.FULL)
			}
			path := dbFile(t)
			c := connect(t, path, name)
			execSQL(t, c, "PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0; CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB); CREATE UNIQUE INDEX i ON t(id, v)")
			execSQL(t, c, "INSERT INTO t(v) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<200) SELECT zeroblob(700) FROM n")
			committed := 0
			for i := range 30 {
				execSQL(t, c, fmt.Sprintf("PRAGMA cache_size=5; BEGIN; UPDATE t SET v=zeroblob(%d) WHERE id<%d; PRAGMA cache_size=1000", 600+i, 60+3*i))
				fail = syscall.ENOSPC
				c.Exec(sql)
				if fail = nil; !c.GetAutocommit() && c.Exec("COMMIT") == nil {
					committed++
				} else if !c.GetAutocommit() {
					execSQL(t, c, "ROLLBACK")
				}
				for _, vfs := range []string{name, "os"} {
					wantQuery(t, connect(t, path, vfs), "PRAGMA integrity_check", "ok")
				}
				if t.Failed() {
					t.Fatalf("round %d", i)
				}
			}
			if t.Logf("%d writes refused, %d of 30 committed", refused, committed); refused == 0 {
				t.Error("no frames were held at a read")
			}
		})
	}
}

// TestSpillsAtRandom plays transactions that spill, with savepoints, rollbacks, checkpoints and, in half of the
// seeds, failed writes of the WAL, on two connections in turn. A failed statement may leave its
// transaction open or roll it back. A model has the rows.
// Promise: sqlitevfs/wal-contains-transaction
func TestSpillsAtRandom(t *testing.T) {
	seeds := uint64(ringtest.Rounds(24, 8))
	if testing.Short() {
		seeds = 4
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 11))
			name, rec := record(t, Options{GroupLog: map[bool]Switch{true: On, false: Off}[seed%4 < 2]})
			failing := false
			rec.fail = func(event string) error {
				if failing && event == "write wal" && r.IntN(3) == 0 {
					return vfs.SystemError(syscall.ENOSPC, sqlite3.FULL)
				}
				return nil
			}
			path := dbFile(t)
			var conns []*sqlite3.Conn
			for range 2 {
				c := connect(t, path, name)
				execSQL(t, c, "PRAGMA page_size=1024; PRAGMA journal_mode=WAL; PRAGMA cache_size=5; PRAGMA wal_autocheckpoint=100")
				conns = append(conns, c)
			}
			execSQL(t, conns[0], "CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)")
			const sum = "SELECT count(*)||' '||total(id*length(v)) FROM t"
			committed := query(t, conns[0], sum)
			for range 40 {
				c, other := conns[0], conns[1]
				if r.IntN(2) == 0 {
					c, other = other, c
				}
				failing = false
				execSQL(t, c, "BEGIN IMMEDIATE")
				var savepoints []string
				failing = seed%2 == 1
				for range r.IntN(12) {
					if c.GetAutocommit() {
						break
					}
					switch r.IntN(6) {
					case 0:
						failing = false
						savepoints = append(savepoints, query(t, c, sum))
						failing = seed%2 == 1
						execSQL(t, c, fmt.Sprintf("SAVEPOINT s%d", len(savepoints)))
					case 1:
						if k := len(savepoints); k > 0 && c.Exec(fmt.Sprintf("ROLLBACK TO s%d; RELEASE s%[1]d", k)) == nil {
							failing = false
							wantQuery(t, c, sum, savepoints[k-1])
							failing, savepoints = seed%2 == 1, savepoints[:k-1]
						}
					case 2:
						c.Exec(fmt.Sprintf("UPDATE t SET v=zeroblob(%d) WHERE id%%%d=0", r.IntN(900), 1+r.IntN(5)))
					case 3:
						c.Exec(fmt.Sprintf("DELETE FROM t WHERE id%%%d=1", 3+r.IntN(9)))
					default:
						c.Exec(fmt.Sprintf("INSERT INTO t(v) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<%d) SELECT zeroblob(%d) FROM n", 1+r.IntN(30), r.IntN(2000)))
					}
				}
				if !c.GetAutocommit() {
					failing = false
					state := query(t, c, sum)
					failing = seed%2 == 1
					if r.IntN(2) == 0 && c.Exec("COMMIT") == nil {
						committed = state
					} else if !c.GetAutocommit() {
						execSQL(t, c, "ROLLBACK")
					}
				}
				failing = false
				if r.IntN(2) == 0 {
					execSQL(t, other, fmt.Sprintf("INSERT INTO t(v) VALUES(zeroblob(%d))", r.IntN(3000)))
					committed = query(t, other, sum)
				}
				if r.IntN(8) == 0 {
					execSQL(t, other, "PRAGMA wal_checkpoint("+[]string{"PASSIVE", "RESTART", "TRUNCATE"}[r.IntN(3)]+")")
				}
				for _, c := range conns {
					wantQuery(t, c, sum, committed)
				}
				if t.Failed() {
					return
				}
			}
			for _, c := range append(conns, connect(t, path, "os")) {
				wantQuery(t, c, sum, committed)
				wantQuery(t, c, "PRAGMA integrity_check", "ok")
			}
		})
	}
}
