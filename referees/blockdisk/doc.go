// SPDX-License-Identifier: MIT

// Package blockdisk checks durability below the file system. It has a block device that records
// each write and each cache flush. Real file systems are made and mounted on it. From the record it
// builds the states in which a power cut may leave a disk. It loads each state into the same
// device, to be mounted, recovered and checked.
//
// # The device
//
// A [Disk] is a file of a FUSE file system under a loop device. The loop driver turns writes of the
// block layer into writes of that file, and cache flushes into fsync. (Cache flushes are
// REQ_PREFLUSH and REQ_FUA; the block layer replaces the latter with a flush after the write.) The
// file is opened with direct I/O, so that the server sees each request when the block layer issues
// it.
//
// # What a disk may do
//
// A write is durable when a flush that began after its end has ended. Until then each of its
// sectors may be on the disk or not, in any order. A power cut may drop unflushed writes, keep
// them, keep a later one without an earlier one, or keep some sectors of one. While it has power
// the disk returns the data written last. These are the rules of a drive with a volatile write
// cache, and file systems are designed for them. There is one exception: ext4 and Btrfs have
// superblocks that are larger than a sector of 512 bytes, and cannot be mounted if one is torn. So
// these are never torn.
//
// # Processes
//
// A process that serves a FUSE file system must not use files on it. A page fault of one of its
// threads would wait for another thread of the same process, which the garbage collector may have
// stopped. So the workloads and the checks are processes of their own.
//
// # Requirements
//
// The tests need root, /dev/fuse, /dev/loop-control and the mkfs program of each file system
// (packages e2fsprogs, xfsprogs, btrfs-progs). Otherwise they skip, and name the missing
// requirement.
package blockdisk
