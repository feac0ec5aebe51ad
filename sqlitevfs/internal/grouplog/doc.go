// SPDX-License-Identifier: MIT

// Package grouplog makes commits of many SQLite databases durable together: the
// frames that a commit appends to a write-ahead log (WAL) are also written to
// one log that all databases share, by one write for all who wait, and the WAL
// itself is synced later, when its database is checkpointed or the log comes
// round.
//
// # Contract
//
// The caller (a VFS) writes frames to the WAL as always. Where SQLite asks for
// a sync after a commit, it calls [WAL.Commit] instead of syncing. Every other
// sync of the WAL is a [WAL.Sync], and before the first write to a database
// whose WAL is [WAL.Dirty] so is that. [Open] replays what a crash left behind
// before anybody may open the databases; it must not be left out.
//
// # Errors
//
// A failed write or sync is final: every later Commit answers an error that
// wraps the first. What was acknowledged is in the log, and the next Open
// replays it.
//
// The format, and what SQLite sees without the replay, are described in
// docs/grouplog.md.
package grouplog
