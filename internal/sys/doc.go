// SPDX-License-Identifier: MIT

// Package sys is the one door to the kernel: io_uring_setup, io_uring_enter,
// io_uring_register, the memory they share with the process, and the few plain
// calls that the fallbacks need. The use of unsafe and of golang.org/x/sys ends
// here.
//
// Pointers cross the boundary in two ways only. Synchronous calls take
// unsafe.Pointer and keep it alive for the call. Asynchronous ones take the
// address as an integer from [Addr] or [SliceAddr], which force what is pointed
// at onto the heap, so that it never moves; keeping it reachable until the
// completion is the duty of whoever submits.
package sys
