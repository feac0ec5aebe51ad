// SPDX-License-Identifier: MIT

package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/superfly/ltx"
)

// compact makes files of a level out of those of the level before, or a snapshot, and removes what is not needed. It
// removes nothing before it has read the object that replaces it from the target.
func (d *database) compact(ctx context.Context, queue int, now time.Time) error {
	files, err := d.files(ctx)
	if err != nil {
		return err
	}
	chain, err := plan(files)
	if err == nil && queue == queueSnapshot {
		err = d.renew(ctx, chain, files)
	} else if err == nil {
		err = d.raise(ctx, queue, files)
	}
	if d.damaged(ctx, err); err != nil {
		return fmt.Errorf("%s: %w", d.name, err)
	}
	switch queue {
	case 1:
		return d.removeMerged(ctx, files, now.Add(-d.b.opts.levels[1]))
	case queueSnapshot:
		if files, err = d.files(ctx); err != nil {
			return err
		}
		return d.removeOutdated(ctx, files, now.Add(-d.b.opts.Keep))
	}
	return nil
}

func (d *database) files(ctx context.Context) ([]File, error) {
	d.b.counts.requests.Add(1)
	return Files(ctx, d.b.target, d.name)
}

// Compactions that fail one after the other before a snapshot takes the place of what they read: for objects that are
// damaged, and for those whose reading the target broke off, as a network does, and a sector that is lost.
const (
	mostDamaged = 2
	mostBroken  = 10
)

// damaged asks for a snapshot if the stream has a gap, or if its objects could not be used several times.
func (d *database) damaged(ctx context.Context, err error) {
	var failed *targetError
	switch lost := errors.Is(err, ErrGap) || errors.Is(err, ErrNone); {
	case err == nil:
		d.broken = 0
		return
	case ctx.Err() != nil:
		return
	case errors.As(err, &failed) && !errors.Is(err, fs.ErrNotExist):
		if !failed.body {
			return
		}
		if d.broken++; d.broken < mostBroken {
			return
		}
	case !lost:
		if d.broken++; d.broken < mostDamaged {
			return
		}
	}
	d.broken = 0
	d.mu.Lock()
	d.lose(err)
	d.mu.Unlock()
	d.wait()
}

// maxMerge is how many files are merged, and read at a time.
const maxMerge = 64

// raise merges the files of the level before that the level does not have. It makes one file of those that follow each
// other: a snapshot may lie between them.
func (d *database) raise(ctx context.Context, level int, files []File) error {
	from := ltx.TXID(0)
	for _, f := range files {
		if f.Level == level {
			from = max(from, f.Max)
		}
	}
	var errs []error
	var run []File
	flush := func() {
		if len(run) > 0 {
			errs = append(errs, d.merge(ctx, level, run))
			run = nil
		}
	}
	for _, f := range files {
		if f.Level != level-1 || f.Min <= from {
			continue
		}
		if len(run) == maxMerge || len(run) > 0 && f.Min != run[len(run)-1].Max+1 {
			flush()
		}
		run = append(run, f)
	}
	flush()
	return errors.Join(errs...)
}

// merge stores the files as one.
func (d *database) merge(ctx context.Context, level int, files []File) error {
	out, err := d.b.scratch()
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	parts, err := d.open(ctx, files)
	defer func() {
		for _, r := range parts {
			r.Close()
		}
	}()
	if err != nil {
		return err
	}
	readers := make([]io.Reader, len(parts))
	for i, r := range parts {
		readers[i] = r
	}
	c, err := ltx.NewCompactor(out, readers)
	if err != nil {
		return err
	}
	if err := c.Compact(ctx); err != nil {
		for _, r := range parts {
			err = r.because(err)
		}
		return fmt.Errorf("level %d: %w", level, err)
	}
	f := File{Level: level, Min: files[0].Min, Max: files[len(files)-1].Max}
	return d.store(ctx, f, c.Header(), out)
}

// open begins to read files, Parallel at a time: each takes as long as the store is away. It returns those that it has opened
// also with an error.
func (d *database) open(ctx context.Context, files []File) ([]*reading, error) {
	all, errs := make([]*reading, len(files)), make([]error, len(files))
	d.b.counts.requests.Add(uint64(len(files)))
	var opened sync.WaitGroup
	places := make(chan struct{}, max(1, d.b.opts.Parallel))
	for i, f := range files {
		places <- struct{}{}
		opened.Go(func() {
			defer func() { <-places }()
			r, err := get(ctx, d.b.target, f.Object(d.name), 0, -1)
			if all[i] = r; err != nil {
				errs[i] = fmt.Errorf("%s: %w", f.Object(d.name), err)
			}
		})
	}
	opened.Wait()
	return slices.DeleteFunc(all, func(r *reading) bool { return r == nil }), errors.Join(errs...)
}

// renew stores the newest state as a snapshot, if it is none. The checksum of each state on the way is compared.
func (d *database) renew(ctx context.Context, chain, files []File) error {
	if len(chain) < 2 {
		return nil
	}
	state, err := d.b.scratch()
	if err != nil {
		return err
	}
	defer os.Remove(state.Name())
	defer state.Close()
	out, err := d.b.scratch()
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	d.b.counts.requests.Add(uint64(len(chain)))
	last, err := build(ctx, d.b.target, d.name, chain, files, state)
	if err != nil {
		return err
	}
	h := last.Header()
	f := File{Level: levelSnapshot, Min: 1, Max: h.MaxTXID, Time: time.UnixMilli(h.Timestamp).UTC()}
	h = f.header(int(h.PageSize), h.Commit, 0)
	all, err := encodeAll(out, h, func(fn func(uint32, []byte) error) error {
		return eachPage(state, int(h.PageSize), h.Commit, func(n uint32, p []byte) error {
			return errors.Join(ctx.Err(), fn(n, p))
		})
	})
	if want := last.Trailer().PostApplyChecksum; err == nil && !last.Header().NoChecksum() && all.checksum() != want {
		err = ltx.ErrChecksumMismatch
	}
	if err != nil {
		return err
	}
	return d.store(ctx, f, h, out)
}

// store sends a file that a compaction has made.
func (d *database) store(ctx context.Context, f File, h ltx.Header, body *os.File) error {
	info, err := body.Stat()
	if err != nil {
		return err
	}
	f.Time = time.UnixMilli(h.Timestamp).UTC()
	return d.b.put(ctx, f.Object(d.name), io.NewSectionReader(body, 0, info.Size()), f.Time)
}

// removeMerged deletes the files of level 0 that a file of level 1 has, if that is older than a time.
func (d *database) removeMerged(ctx context.Context, files []File, limit time.Time) error {
	var errs []error
	for _, in := range files {
		if in.Level != 1 || !in.Time.Before(limit) {
			continue
		}
		var old []File
		for _, f := range files {
			if f.Level == 0 && in.Min <= f.Min && f.Max <= in.Max {
				old = append(old, f)
			}
		}
		if len(old) == 0 {
			continue
		}
		err := d.replaces(ctx, in, old)
		if err == nil {
			err = d.remove(ctx, old...)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// replaces reads a merged file, and returns an error if it has not the states that the others begin and end with.
func (d *database) replaces(ctx context.Context, in File, old []File) error {
	t := d.b.target
	d.b.counts.requests.Add(3)
	dec, err := decode(ctx, t, d.name, in, func(ltx.Header, uint32, []byte) error { return ctx.Err() })
	if err != nil {
		return fmt.Errorf("%s: %w", in.Object(d.name), err)
	}
	if first := old[0]; first.Min == in.Min {
		h, err := header(ctx, t, d.name, first)
		if err != nil || h.PreApplyChecksum != dec.Header().PreApplyChecksum {
			return errors.Join(ltx.ErrChecksumMismatch, err)
		}
	}
	if last := old[len(old)-1]; last.Max == in.Max {
		sum, err := tail(ctx, t, d.name, last)
		if err != nil || sum != dec.Trailer().PostApplyChecksum {
			return errors.Join(ltx.ErrChecksumMismatch, err)
		}
	}
	return nil
}

// removeOutdated deletes the files that are needed only for states before a time: those that end before the newest
// snapshot that is older. That snapshot is read before.
func (d *database) removeOutdated(ctx context.Context, files []File, limit time.Time) error {
	var keep File
	for _, f := range files {
		if f.Min == 1 && f.Max > keep.Max && f.Time.Before(limit) {
			keep = f
		}
	}
	var old []File
	for _, f := range files {
		if f.Max < keep.Max {
			old = append(old, f)
		}
	}
	if len(old) == 0 {
		return nil
	}
	d.b.counts.requests.Add(1)
	if err := check(ctx, d.b.target, d.name, []File{keep}); err != nil {
		return fmt.Errorf("older objects are not removed: %w", err)
	}
	// A snapshot is removed before the files that follow it: what remains at any time has no gap.
	var rest []File
	for _, f := range old {
		if f.Min > 1 {
			rest = append(rest, f)
		} else if err := d.remove(ctx, f); err != nil {
			return err
		}
	}
	return d.remove(ctx, rest...)
}

// remove deletes files.
func (d *database) remove(ctx context.Context, files ...File) error {
	if len(files) == 0 {
		return nil
	}
	if err := d.b.own(ctx); err != nil {
		return err
	}
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = f.Object(d.name)
	}
	d.b.counts.requests.Add(1)
	return d.b.target.Delete(ctx, names...)
}
