// SPDX-License-Identifier: MIT

// Package blockdisk judges durability below the file system. It provides a block
// device that records each write and each cache flush, for real file systems to be
// made and mounted on. From the record it builds states in which a disk may be found
// after a power cut, and serves each on the same device, to be mounted, recovered and
// checked.
//
// # The device
//
// A [Disk] is a file of a FUSE file system under a loop device. The loop driver turns
// writes of the block layer into writes of that file, and cache flushes (REQ_PREFLUSH,
// and REQ_FUA, which the block layer replaces by a flush after the write) into fsync.
// The file is opened with direct I/O, so that the server sees each request when the
// block layer issues it.
//
// # What a disk may do
//
// A write is durable when a flush that began after it has ended. Until then each of its
// sectors may be on the disk or not, in any order: a power cut may drop unflushed
// writes, keep them, keep a later one without an earlier one, or keep some sectors of
// one. The disk returns what was written last as long as it has power. These are the
// rules of a drive with a volatile write cache, and file systems are made for them. One
// exception: ext4 and Btrfs have superblocks that are larger than a sector of 512 bytes,
// and cannot be mounted when one is torn. So these are never torn.
//
// # Processes
//
// A process that serves a FUSE file system must not use files on it: a page fault
// of one of its threads would wait for another thread of the same process, which the
// collector may have stopped. So the workloads and the checks are processes of their
// own.
//
// # What it needs
//
// Root, /dev/fuse, /dev/loop-control and the mkfs program of each file system
// (packages e2fsprogs, xfsprogs, btrfs-progs). Tests skip, naming what is missing.
package blockdisk
