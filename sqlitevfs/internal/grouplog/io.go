// SPDX-License-Identifier: MIT

package grouplog

import (
	"crypto/rand"
	"io"
	"path/filepath"
	"strings"

	"github.com/ringside-io/ringside/sqlitevfs/internal/disk"
)

func randomID() uint64 {
	var p [8]byte
	rand.Read(p[:])
	return le.Uint64(p[:])
}

func writeFull(f disk.File, p []byte, off int64) error {
	n, err := f.WriteAt(p, off)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	return err
}

func readFull(f disk.File, p []byte, off int64) error {
	n, err := f.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// realDir returns the name of the log's directory without symbolic links.
func (l *Log) realDir() string {
	l.realOnce.Do(func() {
		l.real = l.dir
		if dir, err := filepath.EvalSymlinks(l.dir); err == nil {
			l.real = dir
		}
	})
	return l.real
}

// relative returns the name of a WAL in the log: the path from the log's directory, so that both can move
// together.
func (l *Log) relative(path string) string {
	rel, err := filepath.Rel(l.dir, path)
	if err != nil || !filepath.IsLocal(rel) {
		rel, err = filepath.Rel(l.realDir(), path)
	}
	if err != nil {
		return path
	}
	return filepath.ToSlash(rel)
}

// owners returns the hashes by which the log may identify a WAL. Version 0.1.0 used the absolute path of a WAL
// that is not below the log's directory.
func (l *Log) owners(wal string) []uint32 { return []uint32{owner(l.relative(wal)), owner(wal)} }

func (l *Log) absolute(path string) string {
	path = filepath.FromSlash(path)
	switch {
	case filepath.IsAbs(path):
		return path
	case filepath.IsLocal(path):
		return filepath.Join(l.dir, path)
	}
	return filepath.Join(l.realDir(), path)
}

// serves reports whether the log may have records of a WAL.
func (l *Log) serves(name string) bool {
	return !l.opts.Local || filepath.IsLocal(name) && filepath.Base(filepath.FromSlash(name)) == name
}

// database returns the name of the database of a WAL.
func database(wal string) (string, bool) { return strings.CutSuffix(wal, "-wal") }
