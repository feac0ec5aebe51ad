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

// directory returns the absolute name of a log's directory, without symbolic links: names of WALs are relative
// to it.
func directory(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}

// relative returns the name of a WAL in the log: the path from the log's directory, so that both can move
// together.
func (l *Log) relative(path string) string {
	if rel, err := filepath.Rel(l.dir, path); err == nil {
		return filepath.ToSlash(rel)
	}
	return path
}

// owners returns the hashes by which the log may identify a WAL. Version 0.1.0 used the absolute path of a WAL
// that is not below the log's directory.
func (l *Log) owners(wal string) []uint32 { return []uint32{owner(l.relative(wal)), owner(wal)} }

func (l *Log) absolute(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(l.dir, filepath.FromSlash(path))
}

// serves reports whether the log may have records of a WAL.
func (l *Log) serves(name string) bool {
	return !l.opts.Local || filepath.IsLocal(name) && filepath.Base(filepath.FromSlash(name)) == name
}

// database returns the name of the database of a WAL.
func database(wal string) (string, bool) { return strings.CutSuffix(wal, "-wal") }
