// SPDX-License-Identifier: MIT

// Package watch tells when descriptors become ready, through epoll or io_uring,
// which one contract hides.
//
// # Model
//
// A [Watcher] has descriptors registered with what they are watched for
// ([Events]), how often it is reported ([Trigger]) and a value of the caller's,
// which comes back in each [Event]. One turn of an event loop is cut in three:
//
//   - [Watcher.Prepare] gets changes ready for the kernel;
//   - [Watcher.Wait] enters the kernel and sleeps until something is ready;
//   - [Watcher.Dispatch] calls back for what is.
//
// A scheduler holds its lock around the first and the last, and not around
// Wait. [Watcher.Poll] does all three.
//
// Every pollable kind of descriptor can be watched: sockets, pipes, eventfds,
// timers, signals, inotify, pidfds, terminals, netlink. A file that cannot be
// polled, such as a regular one, is refused with EPERM. The watcher never reads,
// writes or closes a descriptor.
//
// # Contract
//
// It holds for both backends; package watchtest is its suite.
//
//   - Add reports what is ready already, and so does Modify, whatever the trigger.
//   - Level reports again with one of the next turns for as long as the state
//     lasts; Edge each time something new arrives; OneShot once, and then nothing
//     until Modify. Level is the one to begin with.
//   - [Error] and [HangUp] are reported without being asked for.
//   - An Edge event holds at least what has come; it may leave out what had
//     been there before and lasts. Any event may be late, so that by now there
//     is nothing to read, if only because it was read without being reported:
//     use descriptors that do not block, and go on reading or writing until
//     EAGAIN where the trigger is Edge.
//   - In one Dispatch each descriptor is reported at most once. Those with
//     [Write] come first, as finishing output frees what input needs. Among those
//     with Write, and among those without, the kernel's order is kept: for Edge
//     and OneShot, the order in which they became ready since the last turn.
//   - After Remove has returned, no event of that registration is reported, also
//     when it had been found before; after Modify, none that is not asked for
//     any more. A callback may add, modify and remove any descriptor.
//   - A number is registered until Remove, whatever becomes of the file: Remove
//     before closing. In between, events of the closed file may be reported
//     where it has other descriptors, though no state that lasts keeps a watcher
//     from sleeping: Level reports it some 100 times at most. Modify may fail,
//     and Add answers EEXIST although the number has been reused. Remove
//     answers nil then as well, and what is added afterwards is not confused
//     with what was there. epoll cannot remove such a file: when it is reported
//     after that, everything is registered with a new instance, which can repeat
//     events of Edge.
//   - What is ready, or becomes so, is reported in the next turn or the one after
//     it, whatever else is ready: each Dispatch has room for [Options].Batch.
//   - With io_uring changes reach the kernel with the next Wait, all in one
//     call. Until then the kernel keeps a removed file open, also after close:
//     a peer sees the end of the connection only then. Prepare and Wait(0)
//     carry changes out at once.
//   - No event is lost, however slow Dispatch is. With io_uring, when thousands
//     come before Dispatch looks, Edge may repeat some of them.
//
// # Concurrency
//
// Wake may be called by any goroutine at any time. Wait is run by one goroutine,
// while others may use the rest; all methods but these two, and [Watcher.Backend],
// exclude each other by a lock of the caller's. Prepare, Wait and Dispatch of one
// turn belong to one goroutine.
//
// # Loop
//
// A [Loop] makes the turns of a watcher of its own and calls a function for each
// descriptor that is ready. It has timers, takes functions from other goroutines,
// and has hooks for signals and for when there is nothing to do. All calls come
// from the goroutine in [Loop.Run], so callbacks need no lock; only Post, Stop,
// Drain, Close and Backend are for others. The contract above holds for it: a
// callback may remove any descriptor, and none that is removed is called for.
//
// # Threads
//
// The ring belongs to the waiting thread, which makes it cheap. The
// goroutine that runs the turns should therefore call runtime.LockOSThread.
// Otherwise all stays correct, but each time that it has come to another thread
// the watcher opens a ring there and registers everything anew, which can repeat
// events of Edge and costs as much as adding all descriptors again. Having
// followed a few times, a watcher that chose io_uring by itself goes over to
// epoll, and Backend says so. A ring that threads share is not offered: it was
// measured slower than epoll. A thread also takes its ring's work with it when
// it exits; the next Prepare on another one follows as well.
//
// # Choosing
//
// [Options] or RINGSIDE_BACKEND in the environment name the backend: auto,
// epoll or io_uring. Auto takes io_uring where the kernel has deferred task work
// and policy allows it, otherwise epoll; [Watcher.Backend] says which and why. A
// backend asked for by name that cannot be had is an error with the reason.
//
// # Kernels
//
// epoll needs Linux 2.6.27, and 5.11 for timeouts finer than a millisecond;
// io_uring needs 6.1. On other systems New answers errors.ErrUnsupported.
package watch
