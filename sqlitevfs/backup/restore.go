// SPDX-License-Identifier: MIT

package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/superfly/ltx"
)

// RestoreOptions choose a state of a database.
type RestoreOptions struct {
	// Before chooses the newest state whose commits were made before a time; the zero Time means the newest state.
	// It is exact to the interval of the backup, and to a level's interval after compaction.
	Before time.Time
}

// Restore writes a database of a target to a file, which must not exist, and returns the newest transaction in it.
// Checksums of all pages and of the whole database are compared; instead of a damaged object others are used, where the
// target has the same commits twice. The file is durable when Restore returns; after an error
// there is none. A backup may run meanwhile.
func Restore(ctx context.Context, t Target, database, path string, o RestoreOptions) (txid uint64, err error) {
	for _, suffix := range []string{"", "-wal", "-journal"} {
		if _, err := os.Lstat(path + suffix); !errors.Is(err, fs.ErrNotExist) {
			return 0, &fs.PathError{Op: "restore", Path: path + suffix, Err: errors.Join(fs.ErrExist, err)}
		}
	}
	for try := 0; ; try++ {
		txid, err = restore(ctx, t, database, path, o)
		// Compaction and retention may have removed a file meanwhile.
		if try == 3 || !errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrNone) {
			return txid, err
		}
	}
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
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*"+suffixNew)
	if err != nil {
		return 0, err
	}
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
			return err
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
func decode(ctx context.Context, t Target, database string, f File, fn func(h ltx.Header, n uint32, p []byte) error) (*ltx.Decoder, error) {
	r, err := t.Get(ctx, f.Object(database), 0, -1)
	if err != nil {
		return nil, &targetError{err}
	}
	defer r.Close()
	dec := ltx.NewDecoder(r)
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
