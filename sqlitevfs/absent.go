// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"io"

	"github.com/ncruces/go-sqlite3/vfs"
)

// SQLite creates a missing WAL before the first read of a database, and its last close removes it. Both change the
// directory, for which the connections of all its databases wait one after the other, and its journal. A connection with
// locking_mode EXCLUSIVE has locked all others out, so its WAL is made by its first write.

// absentWAL is the base of a WAL that has not been made. It has the sector size and the characteristics of the database.
type absentWAL struct{ vfs.File }

func (absentWAL) Close() error                      { return nil }
func (absentWAL) ReadAt([]byte, int64) (int, error) { return 0, io.EOF }
func (absentWAL) Truncate(int64) error              { return nil }
func (absentWAL) Sync(vfs.SyncFlag) error           { return nil }
func (absentWAL) Size() (int64, error)              { return 0, nil }
