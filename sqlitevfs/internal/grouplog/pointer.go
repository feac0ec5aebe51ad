// SPDX-License-Identifier: MIT

package grouplog

import (
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/ringside-io/ringside/sqlitevfs/internal/disk"
)

// A pointer is a small file next to a WAL whose log is in another directory, and names that
// directory. It is durable before the log has a record of the WAL. It is removed when the WAL is
// closed and durable by itself. So a WAL without a pointer does not lack commits of a log
// elsewhere. A database with a pointer can be refused if it is opened without its log.
const (
	pointerSuffix = ".log"
	pointerMagic  = "ringside log of commits, version 1"
	maxPointer    = 8 << 10
)

// PointerTo returns the name of the pointer of a WAL.
func PointerTo(wal string) string { return wal + pointerSuffix }

func encodePointer(dir string) []byte {
	return fmt.Appendf(nil, "%s\n%08x\n%s", pointerMagic, crc32.Checksum([]byte(dir), castagnoli), dir)
}

func decodePointer(p []byte) (dir string, ok bool) {
	magic, rest, _ := strings.Cut(string(p), "\n")
	sum, dir, ok := strings.Cut(rest, "\n")
	return dir, ok && magic == pointerMagic && dir != "" && sum == fmt.Sprintf("%08x", crc32.Checksum([]byte(dir), castagnoli))
}

// Elsewhere returns the log directory in the pointer of a WAL, or "" if the WAL has no pointer. It
// only needs permission to read the pointer.
func Elsewhere(wal string, o Options) (string, error) {
	wal, err := filepath.Abs(wal)
	if err != nil {
		return "", err
	}
	f, err := cmp.Or(o.FS, disk.OS).Open(PointerTo(wal), disk.ReadOnly, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return "", err
	}
	p := make([]byte, min(size, maxPointer))
	if err := readFull(f, p, 0); err != nil {
		return "", err
	}
	dir, ok := decodePointer(p)
	if !ok {
		return "", &CorruptError{PointerTo(wal), 0, "does not name a directory"}
	}
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(filepath.Dir(wal), dir)
	}
	return dir, nil
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
	f, err := l.opts.FS.Open(name+".new", disk.Create, 0o644)
	if err != nil {
		return err
	}
	p := encodePointer(dir)
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

// unpoint removes the pointer of a WAL that is durable by itself. If that fails, or a power cut
// undoes it, the pointer names a log without commits for the WAL, which is harmless.
func (l *Log) unpoint(wal string) {
	if filepath.Dir(wal) != l.dir {
		_ = l.opts.FS.Remove(PointerTo(wal))
	}
}
