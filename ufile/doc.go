// SPDX-License-Identifier: MIT

// Package ufile provides files with the methods of os.File, and uses io_uring for reads
// and writes where that is faster.
//
// # Model
//
// A [File] has the methods of os.File with the same results and errors. Each positional
// read or write is either a plain system call or an operation on a ring. The choice
// follows measurements:
//
//   - A buffered read asks the page cache first, with a raw system call that does not
//     block (preadv2 with RWF_NOWAIT, Linux 4.14). Data that is not cached is read
//     through a ring. Up to 16 KiB of a file that has been cached so far are read by a
//     plain system call where that is faster.
//   - Reads and writes with O_DIRECT go through a ring that all goroutines share.
//     A thousand concurrent operations need a handful of threads, and one system
//     call submits many of them.
//   - If no other operation is in flight, an operation is a plain system call, which is
//     then as fast as a ring.
//   - Large buffered blocks that are not cached are read by plain system calls while few
//     of them are in flight.
//   - Buffered writes are plain system calls. Through a ring, file systems pass
//     them to worker threads.
//   - Some files cannot be read by the kernel without blocking, such as files of FUSE,
//     network file systems, overlayfs, squashfs, ramfs and procfs. They are read and
//     written by plain system calls. The first read or write detects them.
//
// [System.Stats] and [File.Stats] count system calls and ring operations separately. All
// other methods are those of os.File.
//
// # Beyond os.File
//
//   - A [Batch] reads or writes many ranges from one goroutine. One system call submits
//     many of them.
//   - [Buffers] are a pool of memory that is registered with the rings, for O_DIRECT.
//   - A [Reader] reads a file from front to back. With O_DIRECT it reads ahead.
//   - [Copy] and [CopyRange] copy between files, pipes and sockets, within the kernel
//     where possible. They report progress and can be cancelled by a context.
//   - A [Mapped] is a mapped file whose missing pages are read through a ring, so that no
//     page fault stops a P.
//   - [ReadFiles] reads many whole files, and yields them as they arrive.
//   - [File.ReadAtContext] and [File.WriteAtContext] end when their context ends.
//
// For durable logs see package appendlog.
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
// A buffer belongs to the operation until the call returns. No call returns while the
// kernel may still access the buffer, with one exception: if a ring fails after the kernel
// has taken the operation, the error wraps reactor.ErrTaken, and the buffer must not be
// used again. The garbage collector does not free it.
//
// All methods may be called concurrently. Close waits for the positional reads and writes
// in flight, so that none of them can reach another file through a reused descriptor
// number. The garbage collector closes a File that is dropped without Close, like an
// os.File.
//
// # Directories
//
// A [Root] gives access to the files below one directory and to no others, like os.Root.
// It opens each file with one system call. [Root.FS] and [DirFS] return an fs.FS whose
// files are of type *[File]. Calls that take a file name are plain system calls in every
// mode, because a ring passes them to a worker thread, which is slower. [File.Sync] is a
// plain system call for the same reason.
//
// # Contexts and deadlines
//
// When the context of a call ends, an operation on a ring is cancelled. A plain system
// call that has started is not interrupted: the call returns when it has ended. In both
// cases the kernel no longer uses the buffer when the call returns. As in package os,
// regular files have no deadlines.
//
// # Kernels
//
// Rings need Linux 5.11. On older kernels and other systems every call is a method of
// os.File.
package ufile
