// SPDX-License-Identifier: MIT

// Package replica keeps SQLite databases on several machines, usually three, through
// raft. A commit returns when a majority of the machines has it durably. If one machine
// fails, the others continue, and no acknowledged commit is lost. docs/replica.md
// lists what works and what is missing; no name of the module is stable yet.
//
// # Model
//
// Each machine runs a [Node], which [Open] starts. The nodes elect a leader, which
// executes all writes. The pages that a transaction changed are replicated, not its
// statements. The files below [Options].Dir/data are ordinary SQLite databases. While a
// node runs, only the node may use them.
//
// # Writing
//
// [Node.Do] runs a transaction on the leader, from any node. It repeats the transaction
// after an election and after a conflict. [Node.Open] returns a *sql.DB. On a node that is
// not the leader, its statements return a [*NotLeaderError], which names the leader, or run
// on the leader if [Options].Forward is set.
//
// An error that matches [ErrUncertain] means that the transaction may have been committed.
// Read the data to find out. After any other error of a transaction nothing was committed.
// [Node.Open] describes statements outside transactions.
//
// # Reading
//
// Reads on the leader are linearizable. With [Stale], reads run on any node and lag behind
// by at most the given time. [Node.Position] and [Node.Wait] let a program read its own
// write on another node.
//
// # Concurrency and Close
//
// All functions and methods may be called concurrently. [Node.Close] stops the node; a
// database that Node.Open returned must not be used after it.
//
// # Systems
//
// The package needs Linux. On other systems Open returns an error that matches
// [errors.ErrUnsupported].
package replica
