// SPDX-License-Identifier: MIT

package ufile

import (
	"os"

	"github.com/ringside-io/ringside/internal/sys"
)

// borrowOS makes a File of a duplicate, which shares the position and outlives
// a Close of the original.
func borrowOS(f *os.File) (*File, func(), error) {
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
