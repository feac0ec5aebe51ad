// SPDX-License-Identifier: MIT

// Package sqlitevfs is a VFS for SQLite (github.com/ncruces/go-sqlite3) that
// keeps what it promises through a power cut, and waits for the disk less often.
//
// # Use
//
// Importing the package registers the VFS "ringside" beside those of the library.
// A URI chooses it; nothing else changes:
//
//	import _ "github.com/ringside-io/ringside/sqlitevfs"
//
//	db, err := sql.Open("sqlite3", "file:app.db?vfs=ringside")
//
// The direct API takes the same URI. docs/guide-sqlite.md has whole programs.
//
// # Which one
//
//	ringside           every part where it can be had and measurement favours it: group sync,
//	                   prefetch, syncs of directories
//	ringside-log       that, and one log for the commits of all databases of a directory
//	ringside-plain     the syncs of directories only
//	ringside-prefetch  prefetch in any case, no group sync
//	ringside-group     group sync in any case, no prefetch
//
// Take "ringside" when in doubt: its files are what they would be otherwise, and
// are safer. Take "ringside-log" for many databases in WAL mode with
// synchronous=FULL that all belong to one process, such as one for each tenant:
// that is where most is to be won. The others are for comparing, and for when a
// part is in the way. [Register] makes more of them with [Options].
//
// Parameters of the URI override the options for one database:
//
//	prefetch       auto, on or off   read the leaves ahead that a scan will come to
//	prefetchdepth  1 to 1024         so many pages at most; 64
//	prefetchbytes  bytes             of the rest of a table that is being scanned at most; 256 MiB
//	atomic4k       off, on, trust    one page of 4 KiB is written whole: see Atomic writes; off
//	groupsync      auto, on or off   share syncs with other databases
//	grouplog       auto, on or off   share a log of commits; auto is off
//	dirsync        auto, on or off   sync directories
//
// For a connection that shares its database with others of the process, those of
// the first one count. What a parameter cannot mean is an error of opening.
//
// journal_mode and synchronous are SQLite's, and the driver's default in WAL mode
// is synchronous=NORMAL, which may lose the newest commits: ask for FULL, for each
// connection, by _pragma=synchronous(full) in the URI.
//
// # What it promises, and to whom
//
// Files are those of SQLite, byte for byte. Other processes may use them at the
// same time, with this package, with the default VFS or with the program sqlite3:
// locks and shared memory are those of the default VFS, which this one wraps. A
// part that cannot be had here is left out, and [Stats] say so; only a database that
// may lack commits of a log is refused: because they cannot be replayed, as another
// process has it open for example, or because the log is damaged or cannot be read.
//
// Each name keeps a commit with synchronous=FULL through a crash of the process
// and of the machine. With ringside-log the newest commits are in a log beside
// the databases, which this package replays when one of them is next opened, by
// whichever of its names. A program without it that opens the files after a crash
// and before that misses the newest commits, as with synchronous=NORMAL, and never
// sees a damaged database; once it has written, they are lost. One process at a
// time has the log of a directory: another one commits without it. Connections that
// differ in PRAGMA synchronous may share a database. A copy of a directory after a
// crash needs the log as well. The file docs/grouplog.md has all of it, the format
// too; [InspectLog], [ReplayLog], [SalvageLog] and "ringside log" look after logs.
//
// # What it does not do
//
// It does not make one database that commits alone faster, nor reads of what is
// in memory. It has no batch-atomic writes, also where the file system has them:
// SQLite as this driver builds it (with SQLITE_ENABLE_ATOMIC_WRITE beside
// SQLITE_ENABLE_BATCH_ATOMIC_WRITE) does not raise the file change counter in such
// a commit unless it writes the first page anyway. Other connections then take
// what they have in memory for current, and write indexes that do not fit their
// tables. It is no VFS for network file systems: it needs what SQLite needs, locks
// and shared memory that work.
//
// # What it is doing
//
// PRAGMA ringside answers with the [Stats] of a connection's database as JSON,
// [Databases] and [Total] give those of the process, [Vars] is for expvar. Failed
// syncs and replayed commits are told to the Logger of [Options].
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
// When three or more databases of one file system sync at the same time, they may wait
// for each other and share one syncfs(2). Whether they do is measured at run time, for
// WALs and for other files: with journal_mode=PERSIST 16 databases that commit side by
// side made twice as many commits, 64 nearly three times as many, for a third of the
// processor time. syncfs also writes the data of other programs; where that takes long,
// each database syncs by itself for a while. Syncs are shared only on file systems where
// that is durable: ext4, XFS and Btrfs. docs/groupsync.md has the table, the figures, and
// what else was tried.
//
// # Atomic writes
//
// The VFS never says SQLITE_IOCAP_BATCH_ATOMIC: a commit by such writes does not
// raise the file change counter in SQLite as this driver builds it, so that other
// connections keep what is stale and corrupt indexes. SQLITE_IOCAP_ATOMIC4K it says
// where it is asked to (Atomic4K of [Options], atomic4k=on or trust): a transaction
// that changes one page of 4096 bytes then needs no journal. "on" is refused unless
// the device has sectors of 4 KiB; what devices promise for larger atomic writes
// (statx) holds for direct writes only, and not for what goes through the page cache.
//
// # Prefetch
//
// When a leaf of a B-tree is not in the page cache and the leaves before it were read in
// the order of their keys, the next leaves are read into the page cache, up to 64 at a
// time, while SQLite waits for the first. Nothing is kept elsewhere, so nothing stale is
// served. Leaves that are adjacent in the file are left to the kernel's read-ahead. Once a
// scan has read a fifth of a table, the rest is fetched in the order of the file, as the
// scan goes on, within PrefetchBytes and half of the free memory. Cold scans of scattered
// leaves became 4.5 times as fast, CREATE INDEX 3.1 times, a tenth of a table 5.3 times.
// The file docs/prefetch.md has the design, the figures, and where it loses.
//
// Pages are requested by posix_fadvise(2), which also works where io_uring is forbidden and
// was no slower than reads through a ring.
//
// # Systems
//
// Linux. Elsewhere it is the default VFS with syncs of directories.
package sqlitevfs
