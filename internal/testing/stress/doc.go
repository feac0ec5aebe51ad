// SPDX-License-Identifier: MIT

// Package stress runs thousands of goroutines that use files, rings,
// connections and watched descriptors, and judges every byte. It is for tests.
//
// # Language
//
// A [Scenario] is made from a seed, or read from a text: settings, such as how
// likely each fault is, and workers with steps. Each worker is a goroutine.
//
//	scenario sim seed 7
//	set short 0.2
//	worker 3
//	  open file=0 path=2
//	  write file=0 at=17 n=3 way=0 after=0
//	  closeunder file=0 at=17 n=3
//
// A step that needs an open file, a connection or a watch makes one, so that any
// step may be left out: [Shrink] does so while a failure remains. The
// arguments way and after say how an operation is started and, in microseconds,
// when it is cancelled: by a context or by Cancel.
//
// # Environments
//
// An [Environment] provides the objects that a scenario uses. [KernelEnv] has real files,
// pipes and sockets on the running kernel: ufile and its batches, a log, a reactor, unet
// and a watch.Loop. The environment of this package's tests has simulated rings (package
// kernelsim) below ufile and reactor, with everything that a kernel may do to them, on a
// simulated clock. In a variant of it the rings fail permanently: every operation must then
// end once, with the right error, and memory that the kernel still uses must not be
// touched. The environment "faults" is a KernelEnv with random faults of the kernel.
//
// # Models
//
// [FileModel] records for each block of a file which writes a read may still see: any
// number of goroutines write to the same blocks, and a write that failed or was
// cancelled may have been done or not. The bytes of streams are numbered: none
// may be lost, doubled or changed. A buffer is reused at once, and must be
// untouched until then. Closing an object must end the operations on it, and its
// descriptor's number may be reused at once. At the end nothing may be in flight, open or
// running, the files must have the content of the model, and the log each record that
// was acknowledged.
package stress
