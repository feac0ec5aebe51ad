// SPDX-License-Identifier: MIT

// Package powercut tests the state of files after a power cut. It records a program's
// operations on the disk: writes, truncations, changes of names, syncs of files and
// of directories. From the record it builds the states that a disk may have
// after a power cut at any moment, and calls a check that recovers and verifies each of
// them.
//
// # What a disk may do
//
// Until a file is synced, each of its writes may be on the disk, or not, or in
// part: sectors, of 512 bytes by default, are written whole or not at all, in any order. A
// write beyond the end of the file may leave a hole before it. A truncation happened
// or not. Until its directory is synced, a name that was created, renamed or
// removed may be in its old state; the changes of one name happen in their
// order. Syncing a file does not make its name durable. These rules are weaker than the
// guarantees of most file systems; no file system guarantees less.
//
// A sync covers what was written before it was called.
package powercut
