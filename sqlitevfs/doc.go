// SPDX-License-Identifier: MIT

// Package sqlitevfs is a VFS for SQLite (github.com/ncruces/go-sqlite3) that
// keeps what it promises through a power cut, and waits for the disk less often.
//
// # Use
//
// Importing the package registers the VFS "ringside":
//
//	import _ "github.com/ringside-io/ringside/sqlitevfs"
//
//	db, err := sql.Open("sqlite3", "file:app.db?vfs=ringside")
//
// The direct API takes the same URI. [Register] registers others with [Options];
// the parameters prefetch, groupsync and dirsync (auto, on or off) and
// prefetchdepth of a URI override them for a database. PRAGMA ringside,
// [Databases], [Total] and [Vars] show what it did.
//
// Files are those of SQLite, byte for byte, and may be used by other processes,
// with stock SQLite too, at the same time: locks and shared memory are those of
// the default VFS, which this one wraps.
//
// # Durability
//
// The entry of a new database, journal or WAL is made durable before SQLite
// relies on it, and so is the removal of a journal before a commit with
// synchronous=FULL returns; the default VFS does neither, in spite of what its
// code intends. In journal_mode=DELETE that costs one sync more for each commit;
// in TRUNCATE, PERSIST and WAL nothing, as the entry of a journal that stays is
// synced once.
//
// A sync that fails is final: until all connections of the database are closed,
// every later sync answers the same error. The kernel reports a failure once and
// then takes what was lost for written.
//
// # Group sync
//
// When more than four databases of one file system sync at a time, those that
// wait share one syncfs(2): with 16 databases that commit side by side 1.5 times
// the commits, with 64 nearly three times, and a third of the latency at the 99th
// percentile, also beside a writer of 100 MB/s. What else is dirty in the file
// system is written too; where that takes long, each database syncs for itself
// for a while. A journal_mode that keeps the journal (PERSIST) gains most.
//
// # Prefetch
//
// When a page of a B-tree is not in the page cache and the pages before it were
// read in the order of their keys, the leaves that follow are read into the page
// cache, up to 64 at a time, while SQLite waits for the first. Nothing else is
// kept, so that nothing stale can be served. Leaves that lie one behind the other
// are left to the kernel's own read-ahead. Cold scans of scattered leaves became
// 3.6 times as fast, a tenth of a table 5.6 times.
//
// The pages are asked for by posix_fadvise(2). Reads into a throw-away buffer
// through a ring, one system call for 64, were measured beside it: 16384
// scattered pages took 207 to 218 ms and 163 to 176 ms by advice, for the same
// processor time. So the simpler way was taken, which works where io_uring is
// forbidden too.
//
// # Systems
//
// Linux. Elsewhere it is the default VFS with syncs of directories.
package sqlitevfs
