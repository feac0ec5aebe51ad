// SPDX-License-Identifier: MIT

// Package sys makes all system calls of the module: io_uring_setup, io_uring_enter,
// io_uring_register, the memory they share with the process, and the few plain calls
// that the fallbacks need. The other packages of the library do not use unsafe or
// golang.org/x/sys.
//
// Pointers reach the kernel in two ways only. Synchronous calls take unsafe.Pointer and
// keep it alive for the call. Asynchronous calls take the address as an integer from
// [Addr] or [SliceAddr], which force the memory onto the heap, so that it never moves.
// The submitter must keep the memory reachable until the completion.
//
// # Raw calls
//
// Most calls enter the scheduler (Syscall): while such a call blocks, another thread can
// take over its P. A raw call (RawSyscall) does not enter the scheduler: while it blocks,
// it holds its P, and the next garbage collection stops the process until it returns. A raw
// call must therefore never block, whatever other processes do to the descriptor, except for
// locks that the kernel holds for a short time and page faults of the program's own memory.
// O_NONBLOCK is no sufficient reason: it belongs to the open file, and every process that shares
// the file can clear it. A goroutine that makes raw calls only would let the runtime's monitor
// sleep: see wakeMonitor and RawCalls. This is the list of all raw calls of the tree, with the
// function that makes each; internal/testing/lint.TestRawCallsHaveReasons compares.
//
//	internal/sys.SockRecv  recvfrom  MSG_DONTWAIT is added there; longer copies tell the scheduler
//	internal/sys.SockRecvMany  recvmsg  MSG_DONTWAIT is added there; longer copies tell the scheduler
//	internal/sys.SockSend  sendto  MSG_DONTWAIT is added there; longer copies tell the scheduler
//	internal/sys.SockSendMany  sendmsg  MSG_DONTWAIT is added there; longer copies tell the scheduler
//	internal/sys.SockAccept  fcntl  F_GETFL reads a field
//	internal/sys.SockName  call  getsockname and getpeername copy an address
//	internal/sys.SockName  getsockopt  SO_PEERNAME copies an address
//	internal/sys.EpollPollSockets  epoll_pwait  timeout 0, and sockets answer poll without waiting; other files may not
//	internal/sys.Signal  write  an eventfd of our own, full after 2^64-2 signals without a reader
//	internal/sys.PreadNoWait  preadv2  RWF_NOWAIT; refused by files that cannot tell (no FMODE_NOWAIT)
//	internal/sys.EnterRaw  io_uring_enter  no completion is waited for; the submitter knows that no entry blocks in submission
//	internal/sys.EnterRawFor  io_uring_enter  the completions that it waits for are there; otherwise as EnterRaw
//	cmd/internal/loadgen.discard  recvfrom  MSG_DONTWAIT
//	cmd/internal/loadgen.rw  call  read and write on sockets that this process made non-blocking and shares with none
//	cmd/internal/workload.read  read  eventfds and socket pairs that this process made non-blocking and shares with none
//	cmd/internal/workload.write  write  eventfds and socket pairs that this process made non-blocking and shares with none
package sys
