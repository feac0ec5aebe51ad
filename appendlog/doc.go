// SPDX-License-Identifier: MIT

// Package appendlog keeps a durable log of records in a directory of segment files.
// Any number of goroutines append. One of them writes the records of all waiting goroutines
// with one write and makes them durable with one sync (group commit). After a crash, Open
// finds the records again. It returns an error if durable records are missing.
//
// [Open] opens a log for appending, and [Log.Append] returns when its record is durable.
// [Log.Records] reads an open log, starting at a [Position], and does not delay appends. [Read]
// reads a log without opening it. [Log.Trim] removes the oldest segments.
//
// # Order and durability
//
// The records of one goroutine are in the order of its calls. If an append returned
// without error, every later Open finds its record, after a crash of the process and
// after a power cut. This holds for disks that keep what they acknowledged and write a
// 512-byte sector whole or not at all. A record whose append failed or never returned
// may be found or not.
//
// # Errors
//
// A failed write, sync or rotation is reported to every append that it affects, and is
// final. After a failed sync the state of the disk is unknown, and a second sync would
// report success although data were lost. Every later call, including Close, returns an
// error that wraps the first one. Close the log and open it again to find out which
// records survived. A full disk is such a failure, and so is a segment that was deleted,
// renamed or replaced while the log was open.
//
// # How it writes
//
// One goroutine writes a group of records through the page cache, over zeros that were
// written before, and calls fdatasync. docs/appendlog.md describes the format and
// the designs that were measured.
//
// # Where it runs
//
// The log uses plain system calls on every system. It does not use io_uring. On Linux it
// makes records durable by fdatasync.
package appendlog
