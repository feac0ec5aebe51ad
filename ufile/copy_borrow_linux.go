// SPDX-License-Identifier: MIT

package ufile

import (
	"io/fs"
	"os"

	"github.com/ringside-io/ringside/internal/sys"
)

// borrowOS makes a File of a duplicate, which shares the position and outlives
// a Close of the original. A pipe, or whatever else has no offsets, is used
// through the os.File itself, whose deadlines and whose Close end a wait.
func borrowOS(f *os.File) (*File, func(), error) {
	st, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if kind := st.Mode() & (fs.ModeType &^ fs.ModeDevice); kind != 0 { // not a regular file or block device
		lent, err := defaultSystem().newFile(f)
		if err != nil {
			return nil, nil, err
		}
		if flags, err := sys.OpenFlags(lent.fd); err == nil {
			lent.setFlags(flags)
		}
		lent.kind.Store(uint32(kindOther))
		lent.fd, lent.direct = -1, false
		return lent, func() {}, nil
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return nil, nil, err
	}
	dup := -1
	var dupErr error
	if err := conn.Control(func(fd uintptr) { dup, dupErr = sys.Dup(int(fd)) }); err != nil {
		return nil, nil, err
	}
	if dupErr != nil {
		return nil, nil, &os.PathError{Op: "dup", Path: f.Name(), Err: dupErr}
	}
	u, err := NewFile(os.NewFile(uintptr(dup), f.Name()))
	if err != nil {
		return nil, nil, err
	}
	return u, func() { u.Close() }, nil
}
