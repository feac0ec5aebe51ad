// SPDX-License-Identifier: MIT

package backup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/ringside-io/ringside/sqlitevfs"
)

// search compares the databases with the target by once, and has what it lacks stored. It
// repeats what the target refuses, and reports whether that was done.
func (b *Backup) search(once func() error) (done bool) {
	for tries := 1; ; tries++ {
		err := once()
		b.mu.Lock()
		if err == nil || b.ctx.Err() != nil {
			b.looked = true
			b.done.Broadcast()
			b.mu.Unlock()
			return err == nil
		}
		if b.failed = err; tries == 1 {
			b.log.Warn("backup: the databases that do not commit wait for the target", "error", err)
		}
		b.counts.failures.Add(1)
		b.mu.Unlock()
		select {
		case <-b.ctx.Done():
		case <-time.After(retry(tries)):
		}
	}
}

// searchOnce looks below the directory.
func (b *Backup) searchOnce() error {
	b.counts.requests.Add(1)
	all, err := Databases(b.ctx, b.target)
	if err != nil {
		return err
	}
	stored := make(map[string]Report)
	for _, r := range all {
		if len(r.Problems) == 0 {
			stored[r.Name] = r
		}
	}
	var adopted sync.WaitGroup
	places := make(chan struct{}, max(1, b.opts.Parallel/2)) // the others are for commits
	err = filepath.WalkDir(b.dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // removed meanwhile
		case err != nil:
			b.log.Warn("backup: databases below a directory are not found", "path", path, "error", err)
			return fs.SkipDir
		case b.ctx.Err() != nil:
			return b.ctx.Err()
		case e.IsDir():
			b.replay(path)
			return nil
		}
		rel, err := filepath.Rel(b.dir, path)
		if err != nil || !e.Type().IsRegular() || isTemporary(e.Name()) || !isDatabase(path) {
			return err
		}
		name := filepath.ToSlash(rel)
		last, ok := stored[name]
		if ok && last.end.exact && !changedSince(path, last.Last) {
			return nil
		}
		places <- struct{}{}
		adopted.Go(func() {
			defer func() { <-places }()
			if ok && !last.end.exact && b.unchanged(path, last) {
				return
			}
			if d, _ := b.named(name, path); b.lacks(d) { // it may be open, and nothing may commit
				b.adopt(d)
			}
		})
		return nil
	})
	adopted.Wait()
	return err
}

// replay writes the commits of a log that a crash has left into the databases, as opening one of them does.
func (b *Backup) replay(dir string) {
	if r, err := sqlitevfs.InspectLog(dir); err != nil || r.Missing == 0 || r.InUse {
		return
	}
	if _, err := sqlitevfs.ReplayLog(dir); err != nil {
		b.log.Warn("backup: the log of a directory has commits that its databases lack", "path", dir, "error", err)
	}
}

// adoptAll has databases compared, some at a time: the other requests are for commits.
func (b *Backup) adoptAll(names []string) {
	var adopted sync.WaitGroup
	defer adopted.Wait()
	places := make(chan struct{}, max(1, b.opts.Parallel/2))
	for _, name := range names {
		places <- struct{}{}
		d, _ := b.named(name, "")
		adopted.Go(func() {
			b.adopt(d)
			<-places
		})
	}
}

// lacks reports whether a database was not compared with the target yet.
func (b *Backup) lacks(d *database) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return d.done == 0
}

// adopt has a database compared that was found, not committed to, and waits until that is done or has failed.
func (b *Backup) adopt(d *database) {
	d.mu.Lock()
	d.adopted = true
	first := d.waiting.CompareAndSwap(false, true)
	if first {
		d.note()
	}
	d.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if first {
		b.add(d, queueFlush, 0)
	}
	for d.done == 0 && d.tries == 0 && b.ctx.Err() == nil {
		b.done.Wait()
	}
}

// unchanged reports whether a database has not changed since the commits in its newest object. The store's time of an object is
// no measure of that: it is later than the commits by what the store was away, and its clock differs.
func (b *Backup) unchanged(path string, r Report) bool {
	b.counts.requests.Add(1)
	h, err := header(b.ctx, patiently(b.target), r.Name, r.end)
	return err == nil && !changedSince(path, time.UnixMilli(h.Timestamp))
}

// clockStep is more than the resolution of the times of files, and than the time from the look at a database to the stamp of
// what was seen.
const clockStep = 100 * time.Millisecond

// syncStep is more than the time from a write to a WAL to the commit's end, which a sync delays. An object may have been
// stamped between.
const syncStep = time.Minute

// changedSince reports whether the files of a database may have changed after a time. A WAL has something only while a database
// is open, or was when its process ended.
func changedSince(path string, t time.Time) bool {
	for suffix, step := range map[string]time.Duration{"": clockStep, "-journal": clockStep, "-wal": syncStep} {
		info, err := os.Stat(path + suffix)
		switch {
		case errors.Is(err, fs.ErrNotExist), err == nil && suffix == "-wal" && info.Size() == 0:
		case err != nil || info.ModTime().After(t.Add(-step)):
			return true
		}
	}
	return false
}

// isTemporary reports whether a name is one of this package's own files.
func isTemporary(name string) bool {
	return strings.HasPrefix(name, scratchPrefix) || newName.MatchString(name)
}

// Missing returns the databases below a directory that are not among those of a target. Unlike a [Backup] it
// does not leave out those that a crash has left with a rollback journal, which are stored once they were opened.
func Missing(dir string, stored []Report) (names []string, err error) {
	known := make(map[string]bool)
	for _, r := range stored {
		known[r.Name] = true
	}
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || isTemporary(e.Name()) || !beginsAsDatabase(path) {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if name := filepath.ToSlash(rel); err == nil && !known[name] {
			names = append(names, name)
		}
		return err
	})
	return names, err
}

// isDatabase reports whether a file begins as a database does, and has no rollback journal that is to be applied.
func isDatabase(path string) bool {
	var journal [len(journalMagic)]byte
	return beginsAsDatabase(path) && (begins(path+"-journal", journal[:]) < len(journal) || string(journal[:]) != journalMagic)
}

func beginsAsDatabase(path string) bool {
	var head [100]byte
	if begins(path, head[:]) < len(head) {
		return false
	}
	_, err := pageSizeOf(head[:])
	return err == nil
}

const journalMagic = "\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"

// begins reads the beginning of a file.
func begins(path string, p []byte) int {
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	n, _ := f.ReadAt(p, 0)
	return n
}
