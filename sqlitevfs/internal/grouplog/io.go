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

// Canonical returns the absolute name of a file, without symbolic links in the name of its directory.
func Canonical(name string) (string, error) {
	name, err := filepath.Abs(name)
	if err != nil {
		return "", err
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(name)); err == nil {
		name = filepath.Join(dir, filepath.Base(name))
	}
	return name, nil
}

// directory returns the absolute name of a directory without symbolic links.
func directory(name string) (string, error) {
	name, err := filepath.Abs(name)
	if err != nil {
		return "", err
	}
	if dir, err := filepath.EvalSymlinks(name); err == nil {
		name = dir
	}
	return name, nil
}

// relative returns the name of a WAL in the log: the path from the log's directory, so that both can move
// together.
func (l *Log) relative(path string) string {
	rel, err := filepath.Rel(l.dir, path)
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
	if !filepath.IsAbs(path) {
		path = filepath.Join(l.dir, path)
	}
	if name, err := Canonical(path); err == nil {
		return name
	}
	return path
}

// serves reports whether the log may have records of a WAL.
func (l *Log) serves(name string) bool {
	return !l.opts.Local || filepath.IsLocal(name) && filepath.Base(filepath.FromSlash(name)) == name
}

// database returns the name of the database of a WAL.
func database(wal string) (string, bool) { return strings.CutSuffix(wal, "-wal") }
