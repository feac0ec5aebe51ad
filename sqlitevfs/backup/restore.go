// SPDX-License-Identifier: MIT

package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/superfly/ltx"
)

// RestoreOptions choose a state of a database.
type RestoreOptions struct {
	// Before chooses the newest state whose commits were made before a time; the zero Time means the newest state.
	// It is exact to the interval of the backup, and to a level's interval after compaction.
	Before time.Time
	// Parallel is how many databases RestoreAll restores at a time; 0 means 8.
	Parallel int
}

// Restore writes a database of a target to a file, which must not exist, and returns the newest transaction in it.
// Checksums of all pages and of the whole database are compared; instead of a damaged object others are used, where the
// target has the same commits twice. Reads that fail are repeated for five seconds, except in a Dir. The file is durable
// when Restore returns; after an error there is none. What restores that were killed have left in its directory is
// removed. A backup may run meanwhile.
func Restore(ctx context.Context, t Target, database, path string, o RestoreOptions) (txid uint64, err error) {
	if err := absent(path); err != nil {
		return 0, err
	}
	removeLeft(filepath.Dir(path))
	return restoreOne(ctx, t, database, path, o)
}

func restoreOne(ctx context.Context, t Target, database, path string, o RestoreOptions) (txid uint64, err error) {
	t = patiently(t)
	for try := 0; ; try++ {
		txid, err = restore(ctx, t, database, path, o)
		// Compaction and retention may have removed a file meanwhile.
		if try == 3 || !errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrNone) {
			return txid, err
		}
	}
}

// RestoreAll restores databases of a target to files of their names below a directory, Parallel at a time. It writes
// nothing if one of the files exists. each, if it is not nil, is called after each database, by one goroutine at a
// time. The error has those of all databases that were not restored.
func RestoreAll(
	ctx context.Context, t Target, names []string, dir string, o RestoreOptions, each func(name string, txid uint64, err error),
) error {
	paths, dirs := make([]string, len(names)), map[string]bool{}
	for i, name := range names {
		local := filepath.FromSlash(name)
		if !filepath.IsLocal(local) {
			return fmt.Errorf("backup: the database %q would be restored outside of %s", name, dir)
		}
		paths[i] = filepath.Join(dir, local)
		if err := absent(paths[i]); err != nil {
			return err
		}
		dirs[filepath.Dir(paths[i])] = true
	}
	for dir := range dirs {
		removeLeft(dir)
	}
	var mu sync.Mutex // of errs and each
	var errs []error
	var all sync.WaitGroup
	places := make(chan struct{}, cmp.Or(max(o.Parallel, 0), 8))
	for i, name := range names {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			err := cmp.Or(ctx.Err(), os.MkdirAll(filepath.Dir(paths[i]), 0o700))
			var txid uint64
			if err == nil {
				txid, err = restoreOne(ctx, t, name, paths[i], o)
			}
			mu.Lock()
			defer mu.Unlock()
			if each != nil {
				each(name, txid, err)
			}
			errs = append(errs, err)
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// newName matches the names of files that are not restored yet, which createNew chooses.
var newName = regexp.MustCompile(`\.restore-[0-9]+\.tmp$`)

// createNew creates a file for a restore to a path. It is locked until unlock, where there are locks.
func createNew(path string) (f *os.File, unlock func(), err error) {
	for {
		f, err = os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".restore-*.tmp")
		if err != nil {
			return nil, nil, err
		}
		unlock = func() {}
		lock, lockErr := lockFile(f.Name())
		if lockErr == nil {
			unlock = func() { lock.Close() }
		}
		if _, err = os.Lstat(f.Name()); err == nil && !errors.Is(lockErr, syscall.EAGAIN) {
			return f, unlock, nil
		}
		unlock()
		os.Remove(f.Name())
		f.Close()
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // otherwise removeLeft has come between
			return nil, nil, err
		}
	}
}

// removeLeft removes the files in a directory that killed restores have left: they are not locked.
func removeLeft(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		if !newName.MatchString(e.Name()) || !e.Type().IsRegular() {
			continue
		}
		if lock, err := lockFile(name); err == nil {
			os.Remove(name)
			lock.Close()
		}
	}
}

// absent returns an error if there is a database, or a part of one.
func absent(path string) error {
	for _, suffix := range []string{"", "-wal", "-journal"} {
		if _, err := os.Lstat(path + suffix); !errors.Is(err, fs.ErrNotExist) {
			return &fs.PathError{Op: "restore", Path: path + suffix, Err: errors.Join(fs.ErrExist, err)}
		}
	}
	return nil
}

func restore(ctx context.Context, t Target, database, path string, o RestoreOptions) (txid uint64, err error) {
	files, err := Files(ctx, t, database)
	if err != nil {
		return 0, err
	}
	var chain []File
	if o.Before.IsZero() {
		chain, err = plan(files)
	} else {
		chain, err = planBefore(ctx, t, database, files, o.Before)
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", database, err)
	}
	f, unlock, err := createNew(path)
	if err != nil {
		return 0, err
	}
	defer unlock()
	defer os.Remove(f.Name())
	defer f.Close()
	if _, err := build(ctx, t, database, chain, files, f); err != nil {
		return 0, fmt.Errorf("%s: %w", database, err)
	}
	if err := errors.Join(f.Sync(), f.Close(), os.Link(f.Name(), path)); err != nil {
		return 0, err
	}
	return uint64(chain[len(chain)-1].Max), syncDir(filepath.Dir(path))
}

// planBefore returns the files that make up the newest state whose newest commit was made before a time.
func planBefore(ctx context.Context, t Target, database string, files []File, limit time.Time) ([]File, error) {
	var old []File
	for _, f := range files {
		h, err := header(ctx, t, database, f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Object(database), err)
		}
		if time.UnixMilli(h.Timestamp).Before(limit) {
			old = append(old, f)
		}
	}
	chain, err := plan(old)
	if len(chain) == 0 {
		return nil, ErrNone
	}
	next := chain[len(chain)-1].Max + 1
	for _, f := range files {
		if f.Min > 1 && f.Min <= next && next <= f.Max {
			return chain, nil // what seems to lack was merged with later commits
		}
	}
	return chain, err
}

// build writes the state that a plan makes up to a file, and returns the decoder of the plan's last file. If an object is
// damaged, others of the stream that lead to the same state are used.
func build(ctx context.Context, t Target, database string, chain, files []File, f *os.File) (*ltx.Decoder, error) {
	end := chain[len(chain)-1].Max
	files = slices.DeleteFunc(slices.Clone(files), func(f File) bool { return f.Max > end })
	for {
		dec, bad, err := apply(ctx, t, database, chain, f)
		if err == nil || ctx.Err() != nil {
			return dec, err
		}
		files = slices.DeleteFunc(files, func(f File) bool { return f == bad })
		other, planErr := plan(files)
		if planErr != nil || other[len(other)-1].Max != end {
			return nil, err
		}
		chain = other
	}
}

// apply writes the files of a plan one over the other. It returns the decoder of the last one, or the one that is bad.
func apply(ctx context.Context, t Target, database string, chain []File, f *os.File) (dec *ltx.Decoder, bad File, err error) {
	var all sums
	for _, file := range chain {
		name := file.Object(database)
		dec, err = decode(ctx, t, database, file, func(h ltx.Header, n uint32, p []byte) error {
			all.set(n, pageSum(n, p))
			_, err := f.WriteAt(p, int64(n-1)*int64(h.PageSize))
			return errors.Join(ctx.Err(), err)
		})
		if err != nil {
			return nil, file, fmt.Errorf("%s: %w", name, err)
		}
		h := dec.Header()
		all.resize(h.Commit)
		if err := f.Truncate(int64(h.Commit) * int64(h.PageSize)); err != nil {
			return nil, file, err
		}
		if want := dec.Trailer().PostApplyChecksum; !h.NoChecksum() && all.checksum() != want {
			return nil, file, fmt.Errorf("%s: %w: it does not follow the files before it", name, ltx.ErrChecksumMismatch)
		}
	}
	return dec, File{}, nil
}

// decode reads a file, calls fn for each page, and compares the file's checksums.
func decode(
	ctx context.Context, t Target, database string, f File, fn func(h ltx.Header, n uint32, p []byte) error,
) (dec *ltx.Decoder, err error) {
	r, err := get(ctx, t, f.Object(database), 0, -1)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	defer func() { err = r.because(err) }()
	dec = ltx.NewDecoder(r)
	dec.SetRetainPageIndex(false)
	if err := dec.DecodeHeader(); err != nil {
		return nil, err
	}
	h := dec.Header()
	if h.MinTXID != f.Min || h.MaxTXID != f.Max {
		return nil, fmt.Errorf("%w: it has the transactions %d to %d", ltx.ErrInvalidFile, h.MinTXID, h.MaxTXID)
	}
	p := make([]byte, h.PageSize)
	for {
		var page ltx.PageHeader
		if err := dec.DecodePage(&page, p); err == io.EOF {
			return dec, dec.Close()
		} else if err != nil {
			return nil, err
		}
		if err := fn(h, page.Pgno, p); err != nil {
			return nil, err
		}
	}
}
