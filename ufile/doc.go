// SPDX-License-Identifier: MIT

// Package ufile is os.File with io_uring where io_uring is faster.
//
// # Model
//
// A [File] has the methods of os.File with their results, errors and end of
// file to the letter. Each positional read or write takes the path that
// measurement favours:
//
//   - a buffered read first asks the page cache, without blocking and without
//     a switch of threads (preadv2 with RWF_NOWAIT, Linux 4.14); what is not
//     there goes through a ring;
//   - reads and writes with O_DIRECT go through a ring, shared by all
//     goroutines of the process, so that a thousand of them need a handful of
//     threads and a system call serves many;
//   - when nothing else is in flight on the caller's ring, a plain system call
//     is as fast, and taken;
//   - buffered writes are plain system calls: file systems hand them to worker
//     threads otherwise;
//   - files that the kernel cannot read without blocking are read and written by
//     plain system calls: those of FUSE, network file systems, overlayfs, squashfs,
//     ramfs, procfs and others. One preadv2 with RWF_NOWAIT tells, when a file is
//     first read or written at an offset.
//
// Large buffered blocks that are not cached are read by plain calls as long as
// only a few are. [System.Stats] and [File.Stats] count the paths. Everything
// else is os.File's own.
//
// # Beyond os.File
//
//   - A [Batch] reads or writes many ranges from one goroutine, with one system
//     call for many.
//   - A [Reader] reads a file from front to back, O_DIRECT ahead of its user.
//   - [Copy] and [CopyRange] copy between files, pipes and sockets, by the
//     kernel where it can, with progress and a context.
//
// # Choosing
//
// Open, Create and OpenFile choose automatically: where io_uring is absent or
// forbidden they use plain system calls, and [Backend] says why. A [System]
// with ModeRing or ModeSyscall forces a choice; forcing rings where they cannot
// be had is an error that says what to change. RINGSIDE_IOURING=off in the
// environment forbids io_uring for support cases.
//
// # Ownership and concurrency
//
// A buffer is the operation's until the call returns; no call returns while
// the kernel may still touch it. All methods may be called concurrently.
// Close waits for the positional reads and writes in flight, so that none can
// touch a descriptor number that was reused.
// A File that is dropped without Close is closed by the garbage collector, as
// an os.File.
//
// # Names and what is known of files
//
// A [Root] gives access to what is below one directory and to nothing else, as
// os.Root, with one system call for each file it opens; [Root.FS] and [DirFS]
// are file systems (io/fs) whose files are a [File]. Beyond os there are [Statx],
// [RenameNoReplace], [Exchange], extended attributes ([Getxattr] and so on),
// [File.Fallocate] and [File.Advise]. For the rest, such as os.Mkdir, use os.
//
// All of these are plain system calls, one for one call, in every mode: a ring
// hands them to a worker thread, which was measured to cost more. So it is with
// [File.Sync], unless with ModeRing and a context.
//
// # Contexts and deadlines
//
// [File.ReadAtContext], [File.WriteAtContext] and [File.SyncContext] end with a
// context: where the operation is in a ring, the kernel is asked to drop it, and
// in any case the buffer is the caller's when the call returns. A plain call that
// has started is waited for. Regular files have no deadlines, as in os.
//
// # Kernels
//
// Rings need Linux 5.11. Elsewhere, and on other systems, all is os.File.
package ufile
