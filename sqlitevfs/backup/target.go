// SPDX-License-Identifier: MIT

package backup

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Target stores objects under names with slashes. Its methods may be called concurrently. An error matches fs.ErrPermission if it
// is useless to repeat the call.
type Target interface {
	// List returns the objects whose names begin with a prefix, in any order.
	List(ctx context.Context, prefix string) ([]Object, error)
	// Put stores an object, whole or not at all, and durably. The error is fs.ErrExist if there is an object of that name; a
	// store that cannot tell replaces it. stamp is the time of the newest commit in it.
	Put(ctx context.Context, name string, body *io.SectionReader, stamp time.Time) error
	// Get returns n bytes of an object from an offset on; n < 0 means the rest. The error is fs.ErrNotExist if there is
	// no such object.
	Get(ctx context.Context, name string, off, n int64) (io.ReadCloser, error)
	// Delete removes objects. One that does not exist is no error.
	Delete(ctx context.Context, names ...string) error
}

// Object is an object of a Target.
type Object struct {
	Name string
	Size int64
	Time time.Time // of the newest commit in it, or a later time
	// Exact means that Time is the stamp that Put was given, by the clock of this machine.
	Exact bool
}

// targetError is an error of a Target, not of what an object has.
type targetError struct {
	error
	body bool // the object was opened, and reading it failed
}

func (e *targetError) Unwrap() error { return e.error }

func isTarget(err error) bool {
	_, ok := errors.AsType[*targetError](err)
	return ok
}

// reading is an object that is read.
type reading struct {
	io.ReadCloser
	failed error // of the target
}

// get opens an object. The errors of the target, also those of reading, are targetErrors.
func get(ctx context.Context, t Target, name string, off, n int64) (*reading, error) {
	r, err := t.Get(ctx, name, off, n)
	if err != nil {
		return nil, &targetError{error: err}
	}
	return &reading{ReadCloser: r}, nil
}

// Read implements io.Reader.
func (r *reading) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = &targetError{error: err, body: true}
		r.failed = err
	}
	return n, err
}

// because returns the error of the target instead of what a decoder has made of it.
func (r *reading) because(err error) error {
	if err != nil && r.failed != nil {
		return r.failed
	}
	return err
}

// repeats are the pauses before a read is repeated: a restore must not fail because a store was busy once.
var repeats = []time.Duration{100 * time.Millisecond, 400 * time.Millisecond, 1500 * time.Millisecond, 3 * time.Second}

// patient is a Target whose List and Get are repeated if they fail. A body that breaks off is continued.
type patient struct{ Target }

// patiently returns a target for callers that read once. A Backup repeats by itself.
func patiently(t Target) Target {
	switch t.(type) {
	case Dir, patient:
		return t
	}
	return patient{t}
}

// again calls fn until it succeeds, or fails for good.
func again(ctx context.Context, fn func() error) error {
	for tries := 0; ; tries++ {
		err := fn()
		if err == nil || tries == len(repeats) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			return err
		}
		select {
		case <-time.After(repeats[tries]):
		case <-ctx.Done():
			return err
		}
	}
}

// List implements Target.
func (p patient) List(ctx context.Context, prefix string) (all []Object, err error) {
	err = again(ctx, func() error {
		all, err = p.Target.List(ctx, prefix)
		return err
	})
	return all, err
}

// Get implements Target.
func (p patient) Get(ctx context.Context, name string, off, n int64) (io.ReadCloser, error) {
	b := &patientBody{ctx: ctx, target: p.Target, name: name, off: off, left: n}
	if err := again(ctx, b.open); err != nil {
		return nil, err
	}
	return b, nil
}

// patientBody is an object from an offset on.
type patientBody struct {
	ctx       context.Context
	target    Target
	name      string
	off, left int64 // left is negative: the rest
	body      io.ReadCloser
}

func (b *patientBody) open() (err error) {
	b.body, err = b.target.Get(b.ctx, b.name, b.off, b.left)
	return err
}

// Read implements io.Reader.
func (b *patientBody) Read(p []byte) (n int, err error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	failed := again(b.ctx, func() error {
		if b.body == nil {
			if err := b.open(); err != nil {
				return err
			}
		}
		if n, err = b.body.Read(p); n > 0 || err == nil || err == io.EOF {
			return nil
		}
		b.body.Close()
		b.body = nil
		return err
	})
	if failed != nil {
		return 0, failed
	}
	if b.off += int64(n); b.left > 0 {
		b.left -= int64(n)
	}
	if n > 0 && err != io.EOF {
		err = nil // the next call finds it again
	}
	return n, err
}

// Close implements io.Closer.
func (b *patientBody) Close() error {
	if b.body == nil {
		return nil
	}
	return b.body.Close()
}

// Dir is a Target in a directory, which Put creates. Each object is a file.
type Dir string

func (d Dir) path(name string) string { return filepath.Join(string(d), filepath.FromSlash(name)) }

// List implements Target.
func (d Dir) List(ctx context.Context, prefix string) ([]Object, error) {
	var all []Object
	root := d.path(prefix[:strings.LastIndexByte(prefix, '/')+1])
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && e.IsDir() && e.Name() == dirNew {
			return fs.SkipDir
		}
		if err != nil || e.IsDir() {
			return errors.Join(err, ctx.Err())
		}
		rel, err := filepath.Rel(string(d), path)
		if err != nil {
			return err
		}
		if name := filepath.ToSlash(rel); strings.HasPrefix(name, prefix) {
			info, err := e.Info()
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			} else if err != nil {
				return err
			}
			all = append(all, Object{Name: name, Size: info.Size(), Time: info.ModTime(), Exact: true})
		}
		return nil
	})
	return all, err
}

// dirNew has the files that are not objects yet.
const dirNew = ".new"

// Put implements Target.
func (d Dir) Put(_ context.Context, name string, body *io.SectionReader, stamp time.Time) (err error) {
	path := d.path(name)
	f, err := d.create()
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = io.Copy(f, body)
	if err == nil {
		err = os.Chtimes(f.Name(), stamp, stamp)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	err = os.Link(f.Name(), path)
	if errors.Is(err, fs.ErrNotExist) {
		return d.linkBelow(f.Name(), path)
	}
	if err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// linkBelow gives a file a name whose directories are missing. It makes them durable afterwards, from the target's on,
// since the first sync makes the file system commit all of them. Another Put may have made some and not synced
// them yet.
func (d Dir) linkBelow(file, path string) error {
	dir, root := filepath.Dir(path), filepath.Clean(string(d))
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = os.Link(file, path)
	}
	if err != nil {
		return err
	}
	chain := []string{dir}
	for dir != root && len(dir) > len(root) {
		dir = filepath.Dir(dir)
		chain = append(chain, dir)
	}
	for _, dir := range slices.Backward(chain) {
		if err := syncDir(dir); err != nil {
			return err
		}
	}
	return nil
}

// create creates a file that is to be an object. tidy removes it if the process is killed before.
func (d Dir) create() (*os.File, error) {
	dir := d.path(dirNew)
	f, err := os.CreateTemp(dir, "")
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	if err := d.mkdir(dir); err != nil {
		return nil, err
	}
	return os.CreateTemp(dir, "")
}

// tidy removes what processes that were killed have left.
func (d Dir) tidy() {
	left, _ := os.ReadDir(d.path(dirNew))
	for _, e := range left {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > time.Hour {
			os.Remove(filepath.Join(d.path(dirNew), e.Name()))
		}
	}
}

// mkdir creates a directory and those above it, durably.
func (d Dir) mkdir(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if parent := filepath.Dir(dir); parent != dir {
		if err := d.mkdir(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(filepath.Dir(dir))
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}

// Get implements Target.
func (d Dir) Get(_ context.Context, name string, off, n int64) (io.ReadCloser, error) {
	f, err := os.Open(d.path(name))
	if err != nil {
		return nil, err
	}
	if n < 0 {
		n = 1<<62 - off
	}
	return struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(f, off, n), f}, nil
}

// Delete implements Target.
func (d Dir) Delete(_ context.Context, names ...string) error {
	var errs []error
	for _, name := range names {
		if err := os.Remove(d.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
