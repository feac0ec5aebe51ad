// SPDX-License-Identifier: MIT

package appendlog

import "github.com/ringside-io/ringside/internal/sys"

// identity is what tells a file from every other.
type identity struct {
	path       []byte // the name, with a zero byte
	ino        uint64
	major, min uint32
	st         sys.StatxBuf
}

// identify notes the identity of an open file.
func (f *dirFile) identify() error {
	f.path = append([]byte(f.name), 0)
	if err := sys.StatxAt(f.fd, &[]byte{0}[0], sys.AtEmptyPath, sys.StatxIno, &f.st); err != nil {
		f.ino = 0 // compare works everywhere
		return nil
	}
	f.ino, f.major, f.min = f.st.Ino, f.st.Dev_major, f.st.Dev_minor
	return nil
}

// Check returns an error when the file's name does not lead to it any more. It
// allocates nothing, as each group asks.
func (f *dirFile) Check() error {
	if f.ino != 0 && sys.StatxAt(f.store.fd, &f.path[0], sys.AtNoFollow, sys.StatxIno, &f.st) == nil &&
		f.st.Ino == f.ino && f.st.Dev_major == f.major && f.st.Dev_minor == f.min {
		return nil
	}
	return f.compare()
}
