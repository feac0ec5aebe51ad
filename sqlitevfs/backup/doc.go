// SPDX-License-Identifier: MIT

// Package backup sends each commit of the databases that package sqlitevfs serves to a directory or an object
// store, within Options.Interval and the time of a request.
//
// [Start] observes the VFSes of package sqlitevfs. A commit costs its connection a note that there is one; a goroutine
// reads the changed pages from the WAL later. Pages are copied while a connection waits only before it restarts the
// WAL, and in rollback modes. There is no goroutine, timer, descriptor or connection for each database.
//
// Each database has a stream of LTX files (github.com/superfly/ltx) named as Litestream v0.5 names them: a file for the
// commits of each interval, levels in which they are merged after 30 seconds, 5 minutes and an hour, and snapshots.
// The files have the checksums of the database before and after them. By these a Backup that starts finds where the
// stream ends: in the state of the database, in an earlier state of its WAL, or elsewhere. Then a snapshot follows.
// Compaction and retention read an object before they remove those that it replaces, and a snapshot follows where the
// chain of the newest state has a gap. The commits of a database wait while its snapshot is made.
//
// Start also finds databases below the directory that nothing commits to, and stores what the target lacks of them. A target
// belongs to one Backup: the former one ends with [ErrTaken] when another starts, which waits for ten seconds
// before its first object, unless the former was closed or was a process of this machine that has ended.
//
// [Follow] does the same for the databases of a [Source], such as a cluster of package replica: the process that leads stores
// them. Their transactions have the cluster's numbers, so that each process continues the stream.
//
// [Restore] writes a database as it was; `litestream restore` can do so too. [Verify] reads all objects.
//
// A commit that the target does not have yet is lost with the machine. A database must not be removed and
// created again under the same name while it is open. What other processes commit is found when this process
// commits, and makes a snapshot. Encryption at rest is the store's.
package backup
