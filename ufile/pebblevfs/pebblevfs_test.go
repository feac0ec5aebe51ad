// SPDX-License-Identifier: MIT

//go:build linux

package pebblevfs_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/vfstest"
	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/ufile"
	"github.com/ringside-io/ringside/ufile/pebblevfs"
)

// overModes runs a test with a file system in each mode.
func overModes(t *testing.T, test func(t *testing.T, fs vfs.FS)) {
	for _, mode := range []ufile.Mode{ufile.ModeAuto, ufile.ModeRing, ufile.ModePlain} {
		t.Run(mode.String(), func(t *testing.T) {
			if err := features.HaveIOURing(); mode == ufile.ModeRing && err != nil {
				t.Skip(err)
			}
			s, err := ufile.NewSystem(ufile.Options{Mode: mode})
			if err != nil {
				t.Fatal(err)
			}
			test(t, pebblevfs.New(s))
		})
	}
}

// TestAsDefault makes the same calls on vfs.Default and compares the results.
// Promise: ufile/pebblevfs-returns-results
func TestAsDefault(t *testing.T) {
	overModes(t, func(t *testing.T, ours vfs.FS) {
		want, got := script(vfs.Default, t.TempDir()), script(ours, t.TempDir())
		if len(want) != len(got) {
			t.Fatalf("%d results, want %d", len(got), len(want))
		}
		for i := range want {
			if want[i] != got[i] {
				t.Errorf("%q, want %q", got[i], want[i])
			}
		}
	})
}

// script makes the calls of a file system and returns their results.
func script(fsys vfs.FS, dir string) (said []string) {
	path := func(name string) string { return filepath.Join(dir, name) }
	say := func(what string, err error, more ...any) {
		var kind string
		for _, e := range []error{nil, fs.ErrExist, fs.ErrNotExist, fs.ErrClosed, fs.ErrInvalid, io.EOF} {
			if errors.Is(err, e) {
				kind = fmt.Sprint(e)
			}
		}
		if kind == "" {
			kind = "another error"
		}
		said = append(said, fmt.Sprint(what, " ", kind, " ", more))
	}
	content := bytes.Repeat([]byte("0123456789abcdef"), 5000)
	f, err := fsys.Create(path("a"), vfs.WriteCategoryUnspecified)
	say("create", err)
	n, err := f.Write(bytes.Clone(content))
	say("write", err, n)
	say("preallocate", f.Preallocate(0, 1<<20))
	full, err := f.SyncTo(4096)
	say("sync to", err, full)
	say("sync data", f.SyncData())
	say("sync", f.Sync())
	info, err := f.Stat()
	say("stat", err, info.Size(), info.Mode(), info.Name(), info.IsDir())
	byName, err := fsys.Stat(path("a"))
	say("stat by name", err, byName.DeviceID() == info.DeviceID(), info.DeviceID() != vfs.DeviceID{})
	say("close", f.Close())
	say("close again", f.Close())
	_, err = f.Stat()
	say("stat after close", err)
	say("prefetch after close", f.Prefetch(0, 10))

	f, err = fsys.Open(path("a"), vfs.RandomReadsOption)
	say("open", err)
	if err := f.Prefetch(0, 1<<16); fsys != vfs.Default && err != nil { // Default returns errno 0
		say("prefetch", err)
	}
	p := make([]byte, 5000)
	for _, off := range []int64{0, 3, 70000, int64(len(content)) - 10, int64(len(content)), 1 << 40} {
		n, err := f.ReadAt(p, off)
		say("read at", err, off, n, string(p[:min(n, 20)]))
	}
	n, err = f.Read(p)
	say("read", err, n)
	_, err = f.Write([]byte("x"))
	say("write to a file opened for reading", err)
	say("close", f.Close())
	_, err = fsys.Open(path("none"))
	say("open a missing file", err)
	d, err := fsys.OpenDir(dir)
	say("open directory", err)
	say("sync directory", d.Sync())
	say("close directory", d.Close())

	f, err = fsys.Create(path("a"), vfs.WriteCategoryUnspecified) // create it again
	say("create again", err)
	info, err = f.Stat()
	say("stat", err, info.Size())
	say("close", f.Close())
	f, err = fsys.OpenReadWrite(path("b"), vfs.WriteCategoryUnspecified)
	say("open for both", err)
	n, err = f.WriteAt([]byte("hello"), 3)
	say("write at", err, n)
	say("close", f.Close())
	f, err = fsys.ReuseForWrite(path("b"), path("c"), vfs.WriteCategoryUnspecified)
	say("reuse", err)
	n, err = f.Write([]byte("AB"))
	say("write", err, n)
	n, err = f.ReadAt(p, 0)
	say("read at", err, n, string(p[:n]))
	say("close", f.Close())
	_, err = fsys.ReuseForWrite(path("b"), path("c"), vfs.WriteCategoryUnspecified)
	say("reuse a missing file", err)
	say("link", fsys.Link(path("c"), path("d")))
	say("link again", fsys.Link(path("c"), path("d")))
	names, err := fsys.List(dir)
	slices.Sort(names)
	say("list", err, names)
	lock, err := fsys.Lock(path("LOCK"))
	say("lock", err)
	_, err = fsys.Lock(path("LOCK"))
	say("lock again", err)
	say("unlock", lock.Close())
	say("remove", fsys.Remove(path("d")))
	say("remove again", fsys.Remove(path("d")))
	say("mkdir", fsys.MkdirAll(path("x/y"), 0o700))
	say("remove all", fsys.RemoveAll(path("x")))
	_, err = fsys.GetDiskUsage(dir)
	say("usage", err)
	return said
}

// TestDatabase lets pebble flush, compact, take checkpoints and open the database again,
// and compares its content with a map.
// Promise: ufile/pebblevfs-returns-results
func TestDatabase(t *testing.T) {
	overModes(t, func(t *testing.T, fsys vfs.FS) {
		fsys, dump := vfstest.WithOpenFileTracking(fsys)
		dir := t.TempDir()
		rng := rand.New(rand.NewPCG(7, 7))
		want := map[string]string{}
		options := func(fsys vfs.FS) *pebble.Options {
			return &pebble.Options{FS: fsys, MemTableSize: 256 << 10, Logger: quiet{}, Cache: pebble.NewCache(64 << 10)}
		}
		for range 4 {
			db, err := pebble.Open(dir, options(fsys))
			if err != nil {
				t.Fatal(err)
			}
			for range 2000 {
				key := fmt.Sprint("key", rng.IntN(5000))
				if rng.IntN(5) == 0 {
					delete(want, key)
					err = db.Delete([]byte(key), pebble.NoSync)
				} else {
					want[key] = strings.Repeat(fmt.Sprint(rng.Uint64()), 1+rng.IntN(20))
					err = db.Set([]byte(key), []byte(want[key]), pebble.NoSync)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := db.Set([]byte("last"), []byte("one"), pebble.Sync); err != nil {
				t.Fatal(err)
			}
			want["last"] = "one"
			if err := errors.Join(db.Flush(), db.Compact(t.Context(), []byte("k"), []byte("z"), true)); err != nil {
				t.Fatal(err)
			}
			same(t, db, want)
			checkpoint := filepath.Join(t.TempDir(), "checkpoint")
			if err := db.Checkpoint(checkpoint); err != nil {
				t.Fatal(err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			copied, err := pebble.Open(checkpoint, options(vfs.Default)) // another file system reads it
			if err != nil {
				t.Fatal(err)
			}
			same(t, copied, want)
			if err := copied.Close(); err != nil {
				t.Fatal(err)
			}
		}
		var open bytes.Buffer
		if dump(&open); open.Len() > 0 {
			t.Errorf("files that pebble has not closed, or that are counted as open:\n%s", &open)
		}
	})
}

// same compares a database with a map.
func same(t *testing.T, db *pebble.DB, want map[string]string) {
	t.Helper()
	it, err := db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		if n++; want[string(it.Key())] != string(it.Value()) {
			t.Fatalf("%s has a wrong value", it.Key())
		}
	}
	if err := it.Error(); err != nil || n != len(want) {
		t.Fatalf("got %d keys, want %d: %v", n, len(want), err)
	}
}

// quiet drops pebble's log.
type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(f string, a ...any) {
	panic(fmt.Sprintf(f, a...))
}

func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	options := &pebble.Options{FS: pebblevfs.New(nil), Logger: quiet{}}
	options.WithFSDefaults() // this also reports slow disks
	db, err := pebble.Open(dir, options)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	if err := db.Set([]byte("round"), binary.BigEndian.AppendUint32(nil, 12), pebble.Sync); err != nil {
		fmt.Println(err)
		return
	}
	value, closer, err := db.Get([]byte("round"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer closer.Close()
	fmt.Println(binary.BigEndian.Uint32(value))
	// Output: 12
}
