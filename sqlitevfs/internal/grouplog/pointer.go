// SPDX-License-Identifier: MIT

package grouplog

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/ringside-io/ringside/sqlitevfs/internal/disk"
)

// A pointer is a small file next to a WAL whose log is in another directory, and names that
// directory and the log. It is durable before the log has a record of the WAL. It is removed when the WAL is
// closed and durable by itself. So a WAL without a pointer does not lack commits of a log
// elsewhere. A database with a pointer can be refused if it is opened without its log.
const (
	pointerSuffix = ".log"
	pointerMagic  = "ringside log of commits, version 1"
	maxPointer    = 8 << 10
)

// PointerTo returns the name of the pointer of a WAL. That of a database "ringside" would otherwise be the name of a
// log.
func PointerTo(wal string) string {
	if name := wal + pointerSuffix; filepath.Base(name) != defaultName {
		return name
	}
	return wal + ".pointer"
}

// Reserved reports whether a database may not have a name, because a log or a copy of one has such names.
func Reserved(database string) bool {
	name := filepath.Base(database)
	return name == defaultName || strings.HasPrefix(name, defaultName+".")
}

// foreign reports whether a file that has the name of a pointer is not one. A damaged pointer is not foreign.
func foreign(b []byte) bool {
	magic := []byte(pointerMagic)
	n := min(len(b), len(magic))
	return !bytes.Equal(b[:n], magic[:n]) && !zeros(b)
}

// Place is where the log of a WAL is.
type Place struct {
	Dir string // its directory; "": that of the WAL
	ID  uint64 // identity of the log; 0: not known, because an earlier version wrote the pointer
}

func (p Place) encode() []byte {
	text := fmt.Sprintf("%s\n%016x", p.Dir, p.ID)
	return fmt.Appendf(nil, "%s\n%08x\n%s", pointerMagic, crc32.Checksum([]byte(text), castagnoli), text)
}

func decodePointer(b []byte) (p Place, ok bool) {
	magic, rest, _ := strings.Cut(string(b), "\n")
	sum, text, _ := strings.Cut(rest, "\n")
	if magic != pointerMagic || sum != fmt.Sprintf("%08x", crc32.Checksum([]byte(text), castagnoli)) {
		return p, false
	}
	p.Dir = text
	if i := strings.LastIndexByte(text, '\n'); i >= 0 && len(text)-i == 17 {
		if id, err := strconv.ParseUint(text[i+1:], 16, 64); err == nil {
			p = Place{text[:i], id}
		}
	}
	return p, p.Dir != ""
}

// errForeign means that another program has made a file with the name of a pointer.
var errForeign = errors.New("another program's file has the name that the pointer to the log needs")

// Elsewhere returns where the log of a WAL is by its pointer, and a zero Place if the WAL has none. The name is
// that of [Canonical]. It only needs permission to read the pointer.
func Elsewhere(wal string, o Options) (p Place, err error) {
	if p, err = readPointer(wal, o); errors.Is(err, errForeign) {
		return Place{}, nil
	}
	return p, err
}

// readPointer returns the place that the pointer beside a WAL names: the zero Place if there is no
// pointer, errForeign if the file is not one.
func readPointer(wal string, o Options) (p Place, err error) {
	f, err := cmp.Or(o.FS, disk.OS).Open(PointerTo(wal), disk.ReadOnly, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	} else if errors.Is(err, syscall.ELOOP) { // a symbolic link is not followed, and no pointer
		return p, errForeign
	} else if err != nil {
		return p, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return p, err
	}
	b := make([]byte, min(size, maxPointer))
	if err := readFull(f, b, 0); errors.Is(err, syscall.EISDIR) || err == nil && foreign(b) {
		return p, errForeign
	} else if err != nil {
		return p, err
	}
	p, ok := decodePointer(b)
	if !ok {
		return p, &CorruptError{PointerTo(wal), 0, "does not name a directory; if another program made the file, rename it"}
	}
	if !filepath.IsAbs(p.Dir) {
		p.Dir = filepath.Join(filepath.Dir(wal), p.Dir)
	}
	p.Dir, err = directory(p.Dir)
	return p, err
}

// Exists returns fs.ErrNotExist if the log is missing, or if another one is in its place. It only needs
// permission to read the log, which may be in use.
func (p Place) Exists(o Options) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	l := &Log{opts: o, path: Path(p.Dir, o)}
	if l.file, err = o.FS.Open(l.path, disk.ReadOnly, 0); err != nil {
		return err
	}
	defer l.file.Close()
	if err := l.readHeader(); err != nil {
		return err
	}
	if p.ID != 0 && p.ID != l.header.id {
		return fmt.Errorf("another log is in its place: %w", &fs.PathError{Op: "open", Path: l.path, Err: fs.ErrNotExist})
	}
	return nil
}

// point writes the pointer of a WAL, unless the WAL is in the log's directory, where the log is
// found anyway. Its name is not durable until the directory is synced.
func (l *Log) point(wal string) error {
	here := filepath.Dir(wal)
	if here == l.dir {
		return nil
	}
	dir, err := filepath.Rel(here, l.dir) // both may move together
	if err != nil {
		dir = l.dir
	}
	name := PointerTo(wal)
	if _, err := readPointer(wal, l.opts); errors.Is(err, errForeign) {
		return &fs.PathError{Op: "create", Path: name, Err: err}
	}
	f, err := l.opts.FS.Open(name+".new", disk.Create, 0o644)
	if err != nil {
		return err
	}
	p := Place{dir, l.header.id}.encode()
	err = cmp.Or(f.Truncate(0), writeFull(f, p, 0))
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = l.opts.FS.Rename(name+".new", name)
	}
	return err
}

// unpointOwn is unpoint, unless the pointer names another log.
func (l *Log) unpointOwn(wal string) {
	if p, err := Elsewhere(wal, l.opts); err == nil && p.Dir == l.dir && (p.ID == 0 || p.ID == l.header.id) {
		l.unpoint(wal)
	}
}

// unpoint removes the pointer of a WAL that is durable by itself. If that fails, or a power cut
// undoes it, the pointer names a log without commits for the WAL, which is harmless.
func (l *Log) unpoint(wal string) {
	if filepath.Dir(wal) != l.dir {
		_ = l.opts.FS.Remove(PointerTo(wal))
	}
}
