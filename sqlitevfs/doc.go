// SPDX-License-Identifier: MIT

// Package sqlitevfs is a VFS for SQLite (github.com/ncruces/go-sqlite3). Acknowledged
// commits survive a power cut, and commits wait for the disk less often.
//
// # Use
//
// Importing the package registers the VFS "ringside" and the others listed below. A URI
// selects a VFS; nothing else changes:
//
//	import _ "github.com/ringside-io/ringside/sqlitevfs"
//
//	db, err := sql.Open("sqlite3", "file:app.db?vfs=ringside")
//
// The direct API takes the same URI. docs/guide-sqlite.md has whole programs.
//
// # Which VFS
//
//	ringside           group sync and prefetch where they are possible and measured to be
//	                   faster, and syncs of directories
//	ringside-log       the same, and one log for the commits of all databases in a directory
//	ringside-plain     syncs of directories only
//	ringside-prefetch  prefetch always, no group sync
//	ringside-group     group sync always, no prefetch
//
// Use "ringside" by default. Its files are the same as with the default VFS, and survive more
// power cuts. Use "ringside-log" for many databases, such as one for each tenant, that are in
// WAL mode with synchronous=FULL and belong to one process. These databases gain the most.
// The other VFSes are for comparisons, and for turning a part off. [Register] adds a VFS with
// other [Options].
//
// Parameters of the URI override the options for one database. The last column has the
// default, where it is not auto:
//
//	prefetch       auto, on or off   read the next leaves of a scan ahead
//	prefetchdepth  1 to 1024         the most pages that are fetched at a time; 64
//	prefetchbytes  bytes             the most bytes of a table that are fetched before the
//	                                 scan reads them; 256 MiB
//	atomic4k       off, on or trust  rely on whole writes of 4 KiB (see Atomic writes); off
//	groupsync      auto, on or off   share syncs with other databases
//	grouplog       auto, on or off   share a log of commits; auto means off
//	grouplogdir    directory         where that log is; the directory of the database
//	dirsync        auto, on or off   sync directories
//
// All connections of a process to a database use the parameters of the first connection.
// Opening a database with an invalid value fails.
//
// journal_mode and synchronous are pragmas of SQLite. The driver's default in WAL mode is
// synchronous=NORMAL, which may lose the newest commits. Set FULL for each connection, by
// _pragma=synchronous(full) in the URI.
//
// # Guarantees
//
// The files have SQLite's format. Other processes may use them at the same time, with this
// package, with the default VFS or with the program sqlite3: this VFS wraps the default VFS,
// which provides locks and shared memory. A part that is not available is left out, and [Stats]
// has the reason. A database is refused only if a log may have commits for it that cannot be
// replayed. Causes are a database that another process has open, and a log that is damaged or
// cannot be read.
//
// With each VFS a commit with synchronous=FULL survives a crash of the process and of the
// machine.
//
// With ringside-log the newest commits are in a log beside the databases:
//
//   - The log is replayed when one of the databases is next opened with any VFS of this package.
//   - A program without this package may open the files between a crash and the replay. It does
//     not see the newest commits, as with synchronous=NORMAL, but never sees a damaged database.
//     If it writes, these commits are lost.
//   - One process at a time uses the log of a directory. Other processes commit without it.
//   - Connections that differ in PRAGMA synchronous may share a database.
//   - A copy of a directory that is made after a crash must contain the log.
//
// docs/grouplog.md has the details and the format. [InspectLog], [ReplayLog], [SalvageLog] and
// the command "ringside log" inspect and repair logs.
//
// # Limits
//
// A single database that commits alone gains where its WAL grows, with ringside-log, and little
// otherwise. Reads of cached pages gain nothing.
// Transactions of more than 20 KiB do not use the log, which gains nothing for them.
//
// The VFS has no batch-atomic writes, even where the file system has them. The driver builds
// SQLite with SQLITE_ENABLE_ATOMIC_WRITE and SQLITE_ENABLE_BATCH_ATOMIC_WRITE. Such a build does
// not raise the file change counter in a batch-atomic commit unless the commit writes the first
// page anyway. Other connections then use stale cached pages and corrupt indexes.
//
// The VFS is not for network file systems: like SQLite it needs working locks and shared
// memory.
//
// # Statistics
//
// PRAGMA ringside returns the [Stats] of a connection's database as JSON. [Databases]
// returns the Stats of each open database of the process, and [Total] the sum for all databases.
// [Vars] is for expvar. The Logger of [Options] receives failed syncs and replayed commits.
//
// # Durability
//
// The directory entry of a new database, journal or WAL is made durable before SQLite
// relies on it. The removal of a journal is made durable before a commit with
// synchronous=FULL returns. The default VFS does neither: its code for that has no effect. In
// journal_mode=DELETE this costs one more sync for each commit. In TRUNCATE, PERSIST and
// WAL it costs nothing more: the journal is kept, so its entry is synced only once.
//
// A failed sync is final. Every later sync of the database returns the same error until all
// of its connections are closed; only the checkpoint of the last close still syncs. The kernel reports
// a failure once, and then treats the lost data as written, so a later sync would succeed. Before the
// error is returned, the committed frames of the WAL are therefore written again, in other blocks if the disk has
// zeros for them, because ext4 loses what is written again to blocks that were allocated for a write which failed.
// The frames of the failed commit are cut off. After a failed checkpoint the database is dropped from the page cache,
// for the same reason. Without O_DIRECT neither is done, and frames that no FULL commit has synced keep their blocks
// until the next sync if another connection is writing. The database may be opened again at once, by this process or
// by another one: its later commits are as durable as any, and the failed commit is not there. A process that is
// killed within that sync leaves this undone. So SQLite's recovery of a WAL, and the replay of the log, begin with
// writing the dirty pages of the WAL and of the database and dropping both from the page cache; the first open of a
// database in a process drops a rollback journal that is not empty, and the database if the journal is hot. After a
// crash the first reads of a database come from the disk.
//
// # Group sync
//
// When three or more databases of one file system sync at the same time, they may wait
// for each other and share one syncfs(2). Measurements at run time decide whether they do. With
// journal_mode=PERSIST, 16 databases that commit at the same time made 1.4 to 2 times as many
// commits, and 64 databases 1.7 to 3 times as many for less than half of the CPU time. Databases in WAL
// mode do not share syncs: the shared log gains more there.
//
// syncfs also writes the data of other programs. Where that takes long, each database syncs by
// itself for a while. Syncs are shared only on file systems where a shared sync is durable:
// ext4 (since Linux 6.12), XFS and Btrfs. docs/groupsync.md has the table, the figures, and the
// other designs.
//
// # Atomic writes
//
// The VFS never reports SQLITE_IOCAP_BATCH_ATOMIC (see Limits). It reports
// SQLITE_IOCAP_ATOMIC4K on request (Atomic4K of [Options], atomic4k=on or trust). A
// transaction that changes one page of 4096 bytes then needs no journal. With "on" a database is
// refused unless the device has sectors of 4 KiB. The larger atomic writes that devices report
// (statx) hold for direct writes only, not for writes through the page cache.
//
// # Prefetch
//
// Prefetch begins when a leaf of a B-tree is not in the page cache and the leaves before it were
// read in the order of their keys. The next leaves, up to 64 at a time, are then read into the
// page cache while SQLite waits for the first one. There is no second cache, so no page can be
// stale. Leaves that are adjacent in the file are left to the kernel's read-ahead.
//
// Once a scan has read a fifth of a table, the rest is fetched in the order of the file as the
// scan goes on. PrefetchBytes and half of the free memory limit what is fetched ahead.
//
// Cold scans of scattered leaves became 4.5 times as fast, CREATE INDEX 3.1 times, a tenth of a
// table 5.3 times. docs/prefetch.md has the design, the figures, and the cases where it loses.
//
// Pages are requested by posix_fadvise(2). It works where io_uring is forbidden, and was no
// slower than reads through a ring.
//
// # Systems
//
// Group sync, the log and prefetch need Linux. On other systems the VFS is the default VFS
// with syncs of directories.
package sqlitevfs
