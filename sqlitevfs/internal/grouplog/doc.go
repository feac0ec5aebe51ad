// SPDX-License-Identifier: MIT

// Package grouplog makes commits of many SQLite databases durable together. The frames that a
// commit appends to a write-ahead log (WAL) are also written to one log that all databases share,
// with one write for all waiting commits. The WAL itself is synced later, when its database is
// checkpointed or when the log reuses the space.
//
// # Contract
//
// The caller (a VFS) writes frames to the WAL as always. Where SQLite asks for a sync after a
// commit, the VFS calls [WAL.Commit] instead, with all frames since [WAL.DurableEnd], because a
// record has to continue the durable part. Every other sync of the WAL is a [WAL.Sync]. If the
// caller knows up to where the WAL was written, it then calls [WAL.SyncedTo]. Before the first
// write to a database whose WAL is [WAL.Dirty], the caller calls [WAL.Sync] too. After a crash
// [Open] or [Recover] must replay the log before the databases are opened. A database must not be
// opened if [Report.Lacks] reports that its WAL lacks commits.
//
// # Errors
//
// After a failed write the log is no longer written. Then, and when the log has no room,
// [WAL.Commit] syncs the WAL instead. A failed sync of a WAL is final for that WAL. Acknowledged
// commits are in the log or in the WAL, and the next Open replays the log.
//
// The format, and the effects of opening a database without the replay, are described in
// docs/grouplog.md.
package grouplog
