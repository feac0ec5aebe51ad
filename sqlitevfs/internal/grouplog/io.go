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

// relative returns the name of a WAL in the log. Below the log's directory it is the path from
// there, so that both can move together. Elsewhere it is the absolute path.
func (l *Log) relative(path string) string {
	if rel, err := filepath.Rel(l.dir, path); err == nil && filepath.IsLocal(rel) {
		return filepath.ToSlash(rel)
	}
	return path
}

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
