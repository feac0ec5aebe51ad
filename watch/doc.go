// SPDX-License-Identifier: MIT

// Package watch reports when descriptors become ready, through epoll or io_uring, with
// one contract for both.
//
// # Model
//
// A caller registers a descriptor with a [Watcher], together with the [Events] to report, a
// [Trigger] and a value. Each [Event] of the descriptor contains that value. A turn of an
// event loop has three steps:
//
//   - [Watcher.Prepare] prepares changes for the kernel;
//   - [Watcher.Wait] enters the kernel and sleeps until a descriptor is ready;
//   - [Watcher.Dispatch] calls a function for each descriptor that is ready.
//
// A scheduler holds its lock during the first and the last step, but not during Wait.
// [Watcher.Poll] performs all three.
//
// Every pollable kind of descriptor can be watched: sockets, pipes, eventfds, timers,
// signals, inotify, pidfds, terminals, netlink. A file that cannot be polled, such as a
// regular file, is refused with EPERM. The watcher never reads, writes or closes a
// descriptor.
//
// # Contract
//
// The contract holds for both backends. Package watchtest is its test suite.
//
//   - Add and Modify report present readiness, with every trigger.
//   - Level reports a descriptor again in one of the next turns as long as it is ready.
//     Edge reports it each time something new arrives. OneShot reports it once, and then
//     not until Modify. If in doubt, use Level.
//   - [Error] and [HangUp] are always reported.
//   - An Edge event contains at least the new state. It may lack older states that still
//     hold. Any event may be out of date: there may be nothing to read, for example
//     because the data were read before they were reported. Use non-blocking descriptors,
//     and with Edge read or write until EAGAIN.
//   - One Dispatch reports each descriptor at most once. Descriptors with [Write] come
//     first, because finishing output frees resources for input. Among those with Write,
//     and among the others, the kernel's order is kept: for Edge and OneShot, the order in
//     which they became ready since the last turn.
//   - After Remove has returned, no event of that registration is reported, even if it had
//     been found before. After Modify, only events of the new interest are reported. A
//     callback may add, modify and remove any descriptor.
//   - Call Remove before closing a descriptor. A descriptor number stays registered until
//     Remove, even if the file is closed. If a duplicate keeps the closed file open, its
//     events may still be reported, but Level reports a lasting state about 100 times at
//     most, so that the watcher can sleep. Modify may fail, and Add returns EEXIST even if
//     the number now names another file. Remove returns nil, and a later registration of
//     the number is independent of the old one. epoll cannot remove a closed file: if it
//     is reported again, the watcher moves all registrations to a new epoll instance,
//     which can repeat Edge events.
//   - A descriptor that is or becomes ready is reported in the next turn or the one after
//     it, whatever else is ready. Each Dispatch reports up to [Options].Batch descriptors.
//   - With io_uring, changes reach the kernel with the next Wait, all in one call. Until
//     then the kernel keeps a removed file open, even after close: a peer sees the end of
//     the connection only then. Prepare and Wait(0) execute changes at once.
//   - No event is lost, however slow Dispatch is. With io_uring, Edge may repeat some
//     events when thousands arrive before Dispatch.
//
// # Concurrency
//
// Any goroutine may call Wake, [Watcher.Backend] and [Watcher.Stats] at any time. One
// goroutine may be in Wait while others call the other methods, one at a time: the caller
// provides the lock. Prepare, Wait and Dispatch of one turn belong to one goroutine.
//
// # Loop
//
// A [Loop] has a watcher, performs its turns and calls a function for each descriptor
// that is ready. It has timers, accepts functions from other goroutines, and has hooks for
// signals and for idle times. The goroutine in [Loop.Run] makes all calls, so callbacks
// need no lock. Other goroutines may only call Post, Stop, Drain, Close, Backend
// and Stats. The contract above holds for a Loop: a callback may remove any descriptor, and
// the function of a removed descriptor is not called.
//
// # Threads
//
// The ring belongs to the thread that waits (SINGLE_ISSUER), which makes it cheap. The
// goroutine that makes the turns should therefore call runtime.LockOSThread. Without
// that call the watcher works, but when the goroutine has moved to another thread, it
// opens a ring there and registers all descriptors again. This can repeat Edge events,
// and costs as much as adding all descriptors. After several moves, a watcher that
// chose io_uring automatically changes to epoll, and Backend returns that reason. There
// is no option to share a ring between threads: it was slower than epoll. When a thread
// exits, its ring ends; the next Prepare on another thread opens a new one.
//
// # Choosing
//
// [Options] or RINGSIDE_BACKEND in the environment name the backend: auto, epoll or
// io_uring. Auto is io_uring where the kernel has deferred task work and policy allows it,
// otherwise epoll. [Watcher.Backend] returns the choice and its reason. If the named
// backend cannot be used, New returns an error with the reason.
//
// # Kernels
//
// epoll needs Linux 2.6.27, and 5.11 for timeouts finer than a millisecond. io_uring needs
// 6.1. On other systems New returns errors.ErrUnsupported.
package watch
