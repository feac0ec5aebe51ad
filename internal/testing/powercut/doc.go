// SPDX-License-Identifier: MIT

// Package powercut tests what is left of files after a power cut. It records what
// a program asks of the disk: writes, truncations, changes of names, syncs of files and
// of directories. From the record it builds the states in which a disk may be found
// after a power cut at any moment, and has a check recover and judge each of them.
//
// # What a disk may do
//
// Until a file is synced, each of its writes may be on the disk, or not, or in
// part: sectors, of 512 bytes if nothing is said, are whole or not there, in any order. A write
// beyond the end of the file may leave a hole before it. Truncations are there
// or not. Until its directory is synced, a name that was created, renamed or
// removed may be as it was before; the changes of one name happen in their
// order. Syncing a file does not make its name durable. A disk that keeps these
// rules is worse than most file systems, none is worse than it.
//
// A sync covers what was written before it was called.
package powercut
