// SPDX-License-Identifier: MIT

package blockdisk

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// trial is a file system on a disk for one test.
type trial struct {
	fs    FileSystem
	disk  *Disk
	mount string // where the file system is mounted
	seed  uint64
}

// newTrial makes a file system for a test, or skips it.
func newTrial(t *testing.T, fs FileSystem) *trial {
	t.Helper()
	if err := fs.Missing(); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"fuse", "mount"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	d, err := Open(filepath.Join(dir, "fuse"), fs.Size, fs.Sector)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	s := *seed
	if s == 0 {
		s = rand.Uint64() >> 1
	}
	if err := fs.Make(d); err != nil {
		t.Fatal(err)
	}
	return &trial{fs, d, filepath.Join(dir, "mount"), s}
}

// record runs one process for each work, concurrently, on a new file system, and returns the
// record. With more than one, the tables are made before they start.
func (tr *trial) record(t *testing.T, first work, more ...work) (work, *Record) {
	t.Helper()
	first.Dir, first.Seed = tr.mount, tr.seed
	if *replay != "" {
		return first, replayed(t)
	}
	if err := tr.fs.Mount(tr.disk, tr.mount); err != nil {
		t.Skip(err)
	}
	tr.disk.Start()
	var wg sync.WaitGroup
	errs := make([]error, len(more)+1)
	if len(more) > 0 { // the first makes the tables
		made := first
		made.Levels = nil
		errs[0] = start(t, "work").record(tr.disk, made)
		first.Exists = true
	}
	for i, w := range slices.Concat([]work{first}, more) {
		p := start(t, "work")
		w.Dir, w.Seed, w.Names, w.Exists = tr.mount, tr.seed+uint64(i), first.Names, first.Exists
		w.Kind, w.Mode, w.PageSize = first.Kind, first.Mode, first.PageSize
		wg.Go(func() { errs[i] = errors.Join(errs[i], p.record(tr.disk, w)) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		Unmount(tr.mount)
		t.Fatal(err)
	}
	r := tr.disk.Stop()
	r.Whole = tr.fs.Whole
	if err := Unmount(tr.mount); err != nil {
		t.Fatal(err)
	}
	return first, r
}

// replayed returns the record of -replay.
func replayed(t *testing.T) *Record {
	t.Helper()
	r, err := Load(*replay)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// report fails a test and saves the record of the failure.
func (tr *trial) report(t *testing.T, f *failure, r *Record) {
	t.Helper()
	name := filepath.Join(os.TempDir(), fmt.Sprintf("blockdisk-%d.record", tr.seed))
	if err := r.Save(name); err != nil {
		t.Error(err)
	}
	t.Errorf("%v\nreproduce: -run '%s$' -seed %d -state %d:%d -replay %s", f, t.Name(), f.seed, f.state.Cut, f.number, name)
}

// failure is a state that a judge rejected.
type failure struct {
	seed   uint64
	number int
	state  *State
	err    error
}

func (f *failure) Error() string {
	return fmt.Sprintf("seed %d, state %d:%d: %v\n%v", f.seed, f.state.Cut, f.number, f.err, f.state)
}

// explore tries n states of a record and returns the first rejected one.
func (tr *trial) explore(t *testing.T, w work, r *Record, n int) *failure {
	t.Helper()
	began := time.Now()
	judge := start(t, "judge")
	walk := r.Walk(tr.seed)
	numbers := map[int]int{} // states tried at each cut
	stocks := []string{"", "", "os"}
	if _, err := exec.LookPath("sqlite3"); err == nil {
		stocks = append(stocks, "cli")
	}
	cuts := walk.Cuts(n)
	if *only != "" { // it may not be among the n states
		var cut, number int
		if _, err := fmt.Sscanf(*only, "%d:%d", &cut, &number); err != nil {
			t.Fatal("-state: ", err)
		}
		cuts = slices.Repeat([]int{cut}, number+1)
	}
	for _, cut := range cuts {
		number := numbers[cut]
		numbers[cut]++
		name := fmt.Sprintf("%d:%d", cut, number)
		if *only != "" && *only != name {
			continue
		}
		s := walk.State(cut, number)
		if err := tr.try(judge, w, s, stocks[(cut+number)%len(stocks)]); err != nil {
			return &failure{tr.seed, number, s, err}
		}
	}
	if err := judge.end(); err != nil {
		t.Error(err)
	}
	t.Logf("%d operations, %d flushes, %d acknowledged; %d states in %v", len(r.Ops), r.Flushes(), len(walk.acks), n, time.Since(began).Round(time.Millisecond))
	return nil
}

// try mounts a state and asks the judge process about it.
func (tr *trial) try(judge *process, w work, s *State, stock string) error {
	if err := tr.disk.Load(s); err != nil {
		return err
	}
	if err := errors.Join(tr.fs.Recover(tr.disk), tr.fs.Mount(tr.disk, tr.mount)); err != nil {
		return fmt.Errorf("the file system cannot be mounted: %w", err)
	}
	err := judge.ask(question{Work: w, Stock: stock, Acked: acks(s.Notes)})
	return errors.Join(err, Unmount(tr.mount))
}

// many returns the number of states to try, if a test usually tries few.
func many(few int) int {
	switch {
	case *states != 0:
		return *states
	case testing.Short():
		return (few + 1) / 2
	}
	return few
}

func names(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("db%d", i)
	}
	return list
}

// selected returns the file systems of a test: all with -states, otherwise the named ones.
func selected(few ...string) []FileSystem {
	return slices.DeleteFunc(slices.Clone(FileSystems), func(f FileSystem) bool {
		return *states == 0 && *only == "" && !slices.Contains(few, f.Name)
	})
}

// brief are the database workloads that run without -states. Btrfs has changes only, with more states.
var brief = []string{"group-wal", "alone-delete", "attach-delete", "log", "wakes"}

// databases are the workloads of the VFS. Some use several processes.
var databases = []struct {
	name  string
	works []work
}{
	{"group-delete", []work{{VFS: "ringside-group", Mode: "DELETE", Names: names(6), Levels: []string{"FULL"}, Commits: 8}}},
	{"group-persist", []work{{VFS: "ringside-group", Mode: "PERSIST", Names: names(6), Levels: []string{"FULL"}, Commits: 12}}},
	{"group-truncate", []work{{VFS: "ringside-group", Mode: "TRUNCATE", Names: names(6), Levels: []string{"FULL"}, Commits: 8}}},
	{"group-wal", []work{{VFS: "ringside-group", Mode: "WAL", Names: names(6), Levels: []string{"FULL"}, Commits: 12, Large: true}}},
	{"group-mixed", []work{
		{VFS: "ringside-group", Mode: "WAL", Names: names(4), Levels: []string{"FULL", "NORMAL"}, Commits: 8},
		{VFS: "os", Levels: []string{"NORMAL"}, Commits: 8},
	}},
	{"alone-delete", []work{{VFS: "ringside", Mode: "DELETE", Names: names(3), Levels: []string{"FULL"}, Commits: 12}}},
	{"attach-persist", []work{{VFS: "ringside-group", Mode: "PERSIST", Names: names(6), Levels: []string{"FULL"}, Commits: 8, Attach: true}}},
	{"attach-delete", []work{{VFS: "ringside", Mode: "DELETE", Names: names(4), Levels: []string{"FULL"}, Commits: 8, Attach: true}}},
	{"log", []work{{VFS: "ringside-log", Mode: "WAL", Names: names(4), Levels: []string{"FULL"}, Commits: 15, PageSize: 1024, Large: true}}},
	{"log-shared-syncs", []work{{VFS: "ringside-log", Params: "&groupsync=on", Mode: "WAL", Names: names(6), Levels: []string{"FULL"}, Commits: 12, Large: true}}},
	{"log-attach", []work{{VFS: "ringside-log", Mode: "WAL", Names: names(4), Levels: []string{"FULL"}, Commits: 10, Attach: true}}},
	{"log-mixed", []work{{VFS: "ringside-log", Mode: "WAL", Names: names(3), Levels: []string{"FULL", "NORMAL"}, Commits: 15}}},
	{"log-processes", []work{
		{VFS: "ringside-log", Mode: "WAL", Names: names(3), Levels: []string{"FULL"}, Commits: 12},
		{VFS: "ringside", Levels: []string{"NORMAL"}, Commits: 8},
		{VFS: "os", Levels: []string{"NORMAL"}, Commits: 8},
	}},
	{"wakes", []work{{VFS: "ringside-log", Params: "&_pragma=locking_mode(exclusive)", Mode: "WAL", Names: names(6), Levels: []string{"FULL"}, Commits: 10, Wakes: true}}},
	{"changes", []work{{VFS: "ringside", Mode: "WAL", Names: names(1), Levels: []string{"FULL"}, Commits: 10, Changes: true, Large: true}}},
	{"log-psow", []work{{VFS: "ringside-log", Params: "&psow=0", Mode: "WAL", Names: names(3), Levels: []string{"FULL"}, Commits: 15, PageSize: 1024}}},
}

// TestDatabases cuts the power of databases on real file systems.
// Promise: sqlitevfs/tested-below-file
func TestDatabases(t *testing.T) {
	for _, fs := range selected("ext4", "xfs", "btrfs") {
		few, n := brief, 4
		if fs.Name == "btrfs" {
			few, n = []string{"changes"}, 40
		}
		if fs.Repair != nil {
			continue // this mode loses synced files when blocks of deleted files are reused
		}
		t.Run(fs.Name, func(t *testing.T) {
			for _, k := range databases {
				if *states == 0 && *only == "" && !slices.Contains(few, k.name) {
					continue
				}
				// This mode reuses the blocks of truncated and deleted journals before the
				// truncation or deletion is durable. A journal that reappears may have the
				// pages of another one.
				if mode := k.works[0].Mode; fs.Name == "ext4-writeback" && (mode == "TRUNCATE" || mode == "DELETE") {
					continue
				}
				t.Run(k.name, func(t *testing.T) {
					works := slices.Clone(k.works)
					works[0].Kind = "sqlite"
					tr := newTrial(t, fs)
					w, r := tr.record(t, works[0], works[1:]...)
					if f := tr.explore(t, w, r, many(n)); f != nil {
						tr.report(t, f, r)
					}
				})
			}
		})
	}
}

// TestAppendlog cuts the power of a durable log.
// Promise: appendlog/acknowledged-record-found
func TestAppendlog(t *testing.T) {
	for _, fs := range selected("ext4") {
		t.Run(fs.Name, func(t *testing.T) {
			tr := newTrial(t, fs)
			w, r := tr.record(t, work{Kind: "appendlog", Names: names(5), Commits: 200})
			if f := tr.explore(t, w, r, many(15)); f != nil {
				tr.report(t, f, r)
			}
		})
	}
}

// TestFiles cuts the power of files that are written and synced.
// Promise: ufile/data-written-before
func TestFiles(t *testing.T) {
	for _, fs := range selected("xfs") {
		if fs.Repair != nil {
			continue // on this file system growing files lose blocks synced by fsync(2), in a quarter of the runs
		}
		t.Run(fs.Name, func(t *testing.T) {
			tr := newTrial(t, fs)
			w, r := tr.record(t, work{Kind: "file", Names: names(4), Commits: 60})
			if f := tr.explore(t, w, r, many(15)); f != nil {
				tr.report(t, f, r)
			}
		})
	}
}

// TestSyncFS shows on which file systems syncfs(2) makes a file durable, and on which it must be
// followed by an fdatasync(2). Group sync in package sqlitevfs relies on that. The files first grow
// and are then overwritten.
// Promise: sqlitevfs/databases-share-syncfs
// Promise: tests/missing-sync-disk
func TestSyncFS(t *testing.T) {
	flushless := []string{"xfs", "ext4-nojournal"} // file systems on which syncfs is not enough
	for _, fs := range selected("xfs") {
		t.Run(fs.Name, func(t *testing.T) {
			for _, how := range []string{"syncfs", "syncfs+fdatasync"} {
				enough := how != "syncfs" || !slices.Contains(flushless, fs.Name)
				n, recordings := many(20), 1
				if !enough {
					n, recordings = max(n, 400), 5 // not every record has a state that shows it
				}
				var tr *trial
				var f *failure
				var r *Record
				for ; recordings > 0 && f == nil; recordings-- {
					tr = newTrial(t, fs)
					var w work
					w, r = tr.record(t, work{Kind: "file", Sync: how, Names: names(1), Commits: 250})
					f = tr.explore(t, w, r, n)
				}
				switch {
				case enough && f != nil:
					tr.report(t, f, r)
				case !enough && f == nil:
					t.Errorf("%s: no state was refused: does the kernel flush now?", how)
				case !enough:
					t.Logf("%s is not enough: %v", how, f.err)
				}
			}
		})
	}
}

// TestEntries shows that the first fdatasync(2) of a file that was just made makes its directory entry durable.
// Package sqlitevfs relies on that for a rollback journal, on file systems on which syncs are shared.
func TestEntries(t *testing.T) {
	for _, fs := range selected("ext4", "ext4-nojournal") {
		t.Run(fs.Name, func(t *testing.T) {
			tr := newTrial(t, fs)
			w, r := tr.record(t, work{Kind: "file", Sync: entrySync, Names: names(40), Commits: 2})
			if f := tr.explore(t, w, r, many(15)); f != nil {
				tr.report(t, f, r)
			}
		})
	}
}

// TestFailedWrites shows how a failed write to the device is reported to files that share a syncfs.
// Group sync in package sqlitevfs checks for it with sync_file_range of the file, or with syncfs
// and a following fdatasync. On overlayfs the failure is not reported, so group sync is off there.
// Promise: sqlitevfs/failed-write-below
func TestFailedWrites(t *testing.T) {
	for _, fs := range selected("ext4", "xfs") {
		for _, overlay := range []bool{false, true} {
			if overlay && fs.Name == "ext4-journal" {
				continue // data goes to the journal, whose failure is reported by every call
			}
			t.Run(fmt.Sprintf("%s/overlay=%v", fs.Name, overlay), func(t *testing.T) {
				tr := newTrial(t, fs)
				if err := fs.Mount(tr.disk, tr.mount); err != nil {
					t.Fatal(err)
				}
				defer Unmount(tr.mount)
				w := work{Kind: "failure", Dir: tr.mount}
				if overlay {
					options := ""
					for _, name := range []string{"lowerdir", "upperdir", "workdir"} {
						dir := filepath.Join(tr.mount, name)
						if err := os.Mkdir(dir, 0o700); err != nil {
							t.Fatal(err)
						}
						options += name + "=" + dir + ","
					}
					w.Dir = t.TempDir()
					if err := unix.Mount("overlay", w.Dir, "overlay", 0, options[:len(options)-1]); err != nil {
						t.Skip("needs overlayfs: ", err)
					}
					defer Unmount(w.Dir)
				}
				tr.disk.FailWrites(func(p []byte) error {
					if bytes.Contains(p, badBlock) {
						return unix.EIO
					}
					return nil
				})
				tr.disk.Start()
				if err := start(t, "work").record(tr.disk, w); err != nil {
					t.Fatal(err)
				}
				var notes []any
				for _, op := range tr.disk.Stop().Ops {
					if op.Kind == Note {
						notes = append(notes, op.Note)
					}
				}
				told := acks(notes)
				t.Log(told)
				// After a failed syncfs each file is synced by itself.
				reported := told["sync_file_range"] > 0 || told["syncfs"] > 0 && told["fdatasync"] > 0
				if reported == overlay {
					t.Errorf("reported to the callers that share a syncfs: %v", reported)
				}
			})
		}
	}
}

// TestSeededBugs checks that the judge finds each seeded bug.
// Promise: tests/missing-sync-disk
func TestSeededBugs(t *testing.T) {
	all := func(int) bool { return true }
	for _, k := range []struct {
		name string
		fs   string
		work work
		deaf func(flush int) bool // selects flushes that the device ignores
	}{
		{"journal", "ext4", work{Kind: "sqlite", Omit: "journal", Mode: "PERSIST", Names: names(4), Levels: []string{"FULL"}, Commits: 15}, nil},
		{"journal-xfs", "xfs", work{Kind: "sqlite", Omit: "journal", Mode: "DELETE", Names: names(4), Levels: []string{"FULL"}, Commits: 15}, nil},
		{"database", "ext4", work{Kind: "sqlite", Omit: "db", Mode: "TRUNCATE", Names: names(4), Levels: []string{"FULL"}, Commits: 15}, nil},
		{"wal", "ext4", work{Kind: "sqlite", Omit: "wal", Mode: "WAL", Names: names(4), Levels: []string{"FULL"}, Commits: 15}, nil},
		{"wal-btrfs", "btrfs", work{Kind: "sqlite", Omit: "wal", Mode: "WAL", Names: names(4), Levels: []string{"FULL"}, Commits: 15}, nil},
		{"file", "ext4", work{Kind: "file", Sync: "none", Names: names(4), Commits: 60}, nil},
		{"deaf-wal", "xfs", work{Kind: "sqlite", VFS: "ringside-group", Mode: "WAL", Names: names(4), Levels: []string{"FULL"}, Commits: 15}, all},
		{"deaf-appendlog", "xfs", work{Kind: "appendlog", Names: names(4), Commits: 200}, all},
		{"deaf-half", "ext4", work{Kind: "appendlog", Names: names(4), Commits: 200}, func(n int) bool { return n%2 == 0 }},
	} {
		if *states == 0 && !slices.Contains([]string{"wal", "file", "deaf-half"}, k.name) {
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			fs, _ := Find(k.fs)
			tr := newTrial(t, fs)
			w, r := tr.record(t, k.work)
			if k.deaf != nil {
				r = r.Deaf(k.deaf)
			}
			f := tr.explore(t, w, r, 400)
			if f == nil {
				t.Fatal("no state was refused")
			}
			t.Log("state ", f.state.Cut, ":", f.number, " is refused: ", f.err)
		})
	}
}
