// SPDX-License-Identifier: MIT

package backup

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/superfly/ltx"
)

// compact makes a file of a level out of those of the level before, or a snapshot, and removes what is not needed.
func (d *database) compact(ctx context.Context, queue int) error {
	files, err := Files(ctx, d.b.target, d.name)
	d.b.counts.requests.Add(1)
	if err != nil {
		return err
	}
	if queue == queueSnapshot {
		if chain, err := plan(files); err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		} else if len(chain) > 1 {
			if err := d.merge(ctx, levelSnapshot, chain); err != nil {
				return err
			}
		}
		if files, err = Files(ctx, d.b.target, d.name); err != nil {
			return err
		}
		return d.remove(ctx, outdated(files, time.Now().Add(-d.b.opts.Keep)))
	}
	from := ltx.TXID(0)
	for _, f := range files {
		if f.Level == queue {
			from = max(from, f.Max)
		}
	}
	var run []File // files of the level before that follow each other
	for _, f := range files {
		if f.Level != queue-1 || f.Min <= from {
			continue
		}
		if len(run) > 0 && f.Min != run[len(run)-1].Max+1 { // a snapshot lies between
			if err := d.merge(ctx, queue, run); err != nil {
				return err
			}
			run = nil
		}
		run = append(run, f)
	}
	if len(run) > 0 {
		if err := d.merge(ctx, queue, run); err != nil {
			return err
		}
	}
	if queue == 1 {
		return d.remove(ctx, merged(files, time.Now().Add(-d.b.opts.levels[1])))
	}
	return nil
}

// merge stores the files as one.
func (d *database) merge(ctx context.Context, level int, files []File) error {
	out, err := os.CreateTemp(d.b.opts.Scratch, "ringside-backup-*")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	readers := make([]io.Reader, len(files))
	for i, f := range files {
		d.b.counts.requests.Add(1)
		r, err := d.b.target.Get(ctx, f.Object(d.name), 0, -1)
		if err != nil {
			return fmt.Errorf("%s: %w", f.Object(d.name), err)
		}
		defer r.Close()
		readers[i] = r
	}
	c, err := ltx.NewCompactor(out, readers)
	if err != nil {
		return err
	}
	if err := c.Compact(ctx); err != nil {
		return fmt.Errorf("%s: level %d: %w", d.name, level, err)
	}
	info, err := out.Stat()
	if err != nil {
		return err
	}
	f := File{Level: level, Min: files[0].Min, Max: files[len(files)-1].Max, Time: time.UnixMilli(c.Header().Timestamp).UTC()}
	return d.b.put(ctx, f.Object(d.name), io.NewSectionReader(out, 0, info.Size()), f.Time)
}

// merged returns the files of level 0 that level 1 has, if they are older than a time.
func merged(files []File, limit time.Time) (old []File) {
	for _, f := range files {
		for _, in := range files {
			if f.Level == 0 && in.Level == 1 && in.Min <= f.Min && f.Max <= in.Max && f.Time.Before(limit) {
				old = append(old, f)
				break
			}
		}
	}
	return old
}

// outdated returns the files that are needed only for states before a time: those that end before the newest
// snapshot that is older.
func outdated(files []File, limit time.Time) (old []File) {
	var keep ltx.TXID
	for _, f := range files {
		if f.Min == 1 && f.Time.Before(limit) {
			keep = max(keep, f.Max)
		}
	}
	for _, f := range files {
		if f.Max < keep {
			old = append(old, f)
		}
	}
	return old
}

// remove deletes files.
func (d *database) remove(ctx context.Context, files []File) error {
	if len(files) == 0 {
		return nil
	}
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = f.Object(d.name)
	}
	d.b.counts.requests.Add(1)
	return d.b.target.Delete(ctx, names...)
}
