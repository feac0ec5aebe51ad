// SPDX-License-Identifier: MIT

// Package grouplog makes commits of many SQLite databases durable together: the
// frames that a commit appends to a write-ahead log (WAL) are also written to
// one log that all databases share, by one write for all waiting commits, and the WAL
// itself is synced later, when its database is checkpointed or the log comes
// round.
//
// # Contract
//
// The caller (a VFS) writes frames to the WAL as always. Where SQLite asks for
// a sync after a commit, it calls [WAL.Commit] instead of syncing, with all frames
// since [WAL.DurableEnd]: a record has to continue what is durable. Every other sync of
// the WAL is a [WAL.Sync], followed by [WAL.SyncedTo] where the caller knows up to
// where the WAL was written; and before the first write to a database whose WAL
// is [WAL.Dirty] so is that. [Open] or [Recover] replay what a crash left behind
// before the databases may be opened; a database whose WAL [Report.Lacks] commits
// must not be opened.
//
// # Errors
//
// After a failed write the log is not written any more: [WAL.Commit] syncs the
// WAL instead, and so it does where the log has no room. A failed sync of a WAL is
// final for that WAL. Acknowledged commits are in the log or in the WAL, and the
// next Open replays it.
//
// The format, and what SQLite sees without the replay, are described in
// docs/grouplog.md.
package grouplog
