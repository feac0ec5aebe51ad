// SPDX-License-Identifier: MIT

// Package appendlog keeps a durable log of records in a directory of segment files. Any
// number of goroutines may append. One of them, the leader, writes the records of all
// waiting goroutines with one write and makes them durable with one sync (group commit).
// After a crash, Open finds the records again. It returns an error if durable records are
// missing.
//
// [Open] opens a log for appending, and [Log.Append] returns when its record is durable.
// [Log.Records] reads an open log from a [Position] on, and does not delay appends.
// [Read] reads a log without opening it for appending. [Log.Trim] removes the oldest
// segments.
//
// # Order and durability
//
// The records of one goroutine are in the order of its calls. If an append returned
// without error, every later Open finds its record, even after a crash of the process or
// a power cut. This requires a disk that keeps the data that it acknowledged and writes a
// 512-byte sector either completely or not at all. If an append failed or never returned,
// its record may be in the log or not.
//
// # Errors
//
// A failed write, sync or rotation is reported to every append that it affects, and is
// final: every later call, including Close, returns an error that wraps the first one.
// The log does not retry a sync, because after a failed sync the state of the disk is
// unknown, and a second sync may succeed although data was lost. Close the log and open
// it again to find out which records survived. A full disk is such a failure. So is a
// segment that was deleted, renamed or replaced while the log was open.
//
// # How it writes
//
// The leader writes a group of records over zeros that were written in advance, and calls
// fdatasync. On ext4 and XFS it writes past the page cache (O_DIRECT), so what is read soon
// after it was appended comes from the disk. docs/appendlog.md describes the format and
// the designs that were measured.
//
// # Where it runs
//
// The log uses plain system calls on every system. It does not use io_uring. On Linux it
// makes records durable by fdatasync.
package appendlog
