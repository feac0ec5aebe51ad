// SPDX-License-Identifier: MIT

package vm

import (
	"fmt"
	"io"
	"path"
	"strings"
)

// File type bits of a cpio mode.
const (
	cpioDir  = 0o040000
	cpioChar = 0o020000
	cpioFile = 0o100000
)

// cpioWriter writes a cpio archive in the "newc" form the kernel unpacks an
// initramfs from. Every entry belongs to root and is dated 1970, so that equal
// content gives equal archives. Missing parent directories are added.
type cpioWriter struct {
	out  io.Writer
	ino  uint32
	dirs map[string]bool
	err  error
}

func newCPIO(out io.Writer) *cpioWriter {
	return &cpioWriter{out: out, dirs: map[string]bool{".": true, "/": true}}
}

// cpioEntry holds the values that differ between entries.
type cpioEntry struct {
	name         string
	mode         uint32
	size         int64
	major, minor uint32
}

// header writes an entry's header and name. The data, if any, follows and is
// padded by pad.
func (w *cpioWriter) header(e cpioEntry) {
	if e.size > 0xffffffff {
		w.fail(fmt.Errorf("cpio: %s has %d bytes, more than the format can say", e.name, e.size))
		return
	}
	w.ino++
	links := 1
	if e.mode&0o170000 == cpioDir {
		links = 2
	}
	// Magic, inode, mode, uid, gid, links, time, size, device, device number
	// of a special file, length of the name with its zero, checksum.
	head := fmt.Sprintf("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		w.ino, e.mode, 0, 0, links, 0, e.size, 0, 0, e.major, e.minor, len(e.name)+1, 0)
	w.write([]byte(head + e.name + "\x00"))
	w.pad(int64(len(head) + len(e.name) + 1))
}

// parents adds the missing directories above name.
func (w *cpioWriter) parents(name string) {
	if dir := path.Dir(name); !w.dirs[dir] {
		w.dir(dir, 0o755)
	}
}

func (w *cpioWriter) dir(name string, perm uint32) {
	name = cpioName(name)
	if w.dirs[name] {
		return
	}
	w.parents(name)
	w.dirs[name] = true
	w.header(cpioEntry{name: name, mode: cpioDir | perm})
}

// char adds a character device.
func (w *cpioWriter) char(name string, perm, major, minor uint32) {
	name = cpioName(name)
	w.parents(name)
	w.header(cpioEntry{name: name, mode: cpioChar | perm, major: major, minor: minor})
}

// file adds a regular file with size bytes of data.
func (w *cpioWriter) file(name string, perm uint32, size int64, data io.Reader) {
	name = cpioName(name)
	w.parents(name)
	w.header(cpioEntry{name: name, mode: cpioFile | perm, size: size})
	if w.err != nil {
		return
	}
	if _, err := io.CopyN(w.out, data, size); err != nil {
		w.fail(fmt.Errorf("cpio: %s: %w", name, err))
	}
	w.pad(size)
}

func (w *cpioWriter) bytes(name string, perm uint32, data string) {
	w.file(name, perm, int64(len(data)), strings.NewReader(data))
}

// close ends the archive and reports the first error of all calls. It does
// not close the underlying writer.
func (w *cpioWriter) close() error {
	w.ino = ^uint32(0)
	w.header(cpioEntry{name: "TRAILER!!!"})
	return w.err
}

// pad writes zeros after n bytes, up to a multiple of four.
func (w *cpioWriter) pad(n int64) {
	w.write(make([]byte, -n&3))
}

func (w *cpioWriter) write(b []byte) {
	if w.err != nil {
		return
	}
	_, err := w.out.Write(b)
	w.fail(err)
}

func (w *cpioWriter) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

func cpioName(name string) string {
	return strings.TrimPrefix(path.Clean(name), "/")
}
