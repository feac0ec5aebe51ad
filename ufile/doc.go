// SPDX-License-Identifier: MIT

// Package ufile provides files with the methods of os.File, and uses io_uring for reads
// and writes where that is faster.
//
// # Model
//
// A [File] has the methods of os.File with the same results and errors. Each positional
// read or write is either a plain system call or an operation on a ring. Measurements
// decided which:
//
//   - A buffered read asks the page cache first, with a raw system call that does
//     not block (preadv2 with RWF_NOWAIT, Linux 4.14). Data that are not cached are
//     read through a ring.
//   - Reads and writes with O_DIRECT go through a ring that all goroutines share.
//     A thousand concurrent operations need a handful of threads, and one system
//     call submits many of them.
//   - An operation that is alone in flight is a plain system call, which is as fast
//     as a ring.
//   - Large buffered blocks that are not cached are read by plain system calls as
//     long as few are in flight.
//   - Buffered writes are plain system calls. Through a ring, file systems pass
//     them to worker threads.
//   - Files that the kernel cannot read without blocking are read and written by
//     plain system calls: those of FUSE, network file systems, overlayfs, squashfs,
//     ramfs, procfs and others. The first read or write detects them.
//
// [System.Stats] and [File.Stats] count both kinds. All other methods are os.File's.
//
// # Beyond os.File
//
//   - A [Batch] reads or writes many ranges from one goroutine, many of them with one
//     system call.
//   - A [Reader] reads a file from front to back, and with O_DIRECT reads ahead.
//   - [Copy] and [CopyRange] copy between files, pipes and sockets, within the kernel
//     where possible. They report progress and can be cancelled by a context.
//   - [File.ReadAtContext] and [File.WriteAtContext] can be cancelled by a context.
//
// Durable logs are in package appendlog.
//
// # Choosing
//
// Open, Create and OpenFile choose automatically. Where io_uring is absent or
// forbidden they use plain system calls, and [Backend] returns the reason. A
// [System] with ModeRing or ModePlain forces a choice. If rings are forced and cannot be
// opened, the error names the setting to change. RINGSIDE_BACKEND=plain in
// the environment turns io_uring off.
//
// # Ownership and concurrency
//
// A buffer belongs to the operation until the call returns. No call returns while
// the kernel may still access the buffer. All methods may be called concurrently.
// Close waits for the reads and writes at an offset that are in flight, so that none of
// them can use a descriptor number that was reused. The garbage collector closes a File
// that is dropped without Close, as it does an os.File.
//
// # Directories
//
// A [Root] gives access to the files below one directory and to no others, as
// os.Root, with one system call for each file that it opens. [Root.FS] and [DirFS]
// are file systems (io/fs) whose files are a [File]. Calls with a name are plain
// system calls in every mode, because a ring passes them to a worker thread, which is
// slower. [File.Sync] is a plain system call for the same reason.
//
// # Contexts and deadlines
//
// When the context of a call ends, an operation on a ring is cancelled. A plain system
// call that has started is not interrupted: the call returns when it has ended. In both
// cases the kernel no longer uses the buffer when the call returns. Regular files have no
// deadlines, as in os.
//
// # Kernels
//
// Rings need Linux 5.11. On older kernels and other systems every call is os.File's.
package ufile
