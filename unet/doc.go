// SPDX-License-Identifier: MIT

// Package unet provides package net's connections and listeners with less processor time
// per message, and batched and segmented datagrams. [Listen], [Dial]
// and [ListenPacket] replace the functions of the same names, [ListenConfig] and [Dialer]
// the types.
//
// # Model
//
// Package net wakes each reader separately, and the reader then makes a system call to
// receive. In unet a few drivers, one for every four processors, poll for ready sockets
// with edge-triggered epoll. A driver receives for all waiting readers with one system call
// (io_uring), directly into their buffers, and then wakes them. A single receive is a plain
// system call. A reader that does not wait receives for itself, and writes are plain system
// calls that do not block. A driver with few active sockets, but more than one, polls for
// up to 100 µs before it sleeps, and less often after polls without events. A sleeping
// driver uses neither a processor nor a thread. Where goroutines compute on every P,
// calls that are about to wait do the driver's work. While a driver has only one active
// socket, the socket's calls wait in Go's netpoller, as those of package net, and use a
// second descriptor for that.
//
// A datagram socket stays a socket of package net and has no driver: one reader empties
// one socket, so there is no work to share. [BatchConn] receives and sends several
// datagrams in one system call.
//
// Nothing is received before Read is called, so a slow reader costs no memory beyond the
// kernel's buffers (SetReadBuffer). Nothing is kept after a Write returns.
//
// # Behaviour
//
// Connections behave as in package net. At the end of a stream Read returns io.EOF itself;
// every other error is a *net.OpError, which wraps [os.ErrDeadlineExceeded] and
// [net.ErrClosed]. Deadlines can be changed while a call waits. Close ends calls that wait.
// One direction of a connection can be closed alone. [TCPConn], [UnixConn], [UDPConn],
// [UnixgramConn], [TCPListener] and [UnixListener] have the methods of package net's types.
// The garbage collector closes sockets that are dropped without Close. Package net resolves
// names and tries addresses. In a bubble of testing/synctest, as in package net, a call
// that waits is not durably blocked and deadlines take real time.
//
// Differences: a type assertion to *net.TCPConn fails; assert an interface with the
// method instead. net.Buffers.WriteTo makes one system call only for connections of
// package net; use Writev. docs/conn.md lists all differences.
//
// # Choosing
//
// The package's functions choose automatically: where io_uring is absent or forbidden,
// receives are plain system calls, and [Backend] returns the reason. A [System] with a
// [Mode] forces a choice. If rings are forced and not available, the error names the
// setting to change. RINGSIDE_BACKEND=plain in the environment turns io_uring off, for
// example to find the cause of a problem. Rings need Linux 5.11, ModePlain needs Linux. On
// other systems all sockets are package net's. With the automatic choice, a socket that
// cannot be driven for lack of descriptors or memory also stays package net's.
//
// # Ownership and concurrency
//
// A buffer belongs to the connection until the call returns; no call returns while
// the kernel may still use its buffer. All methods may be called concurrently. Reads
// on one connection are made one after the other, and so are writes; reads and writes
// do not wait for each other. The drivers start with the first socket of a System and
// stop when the last one is closed. Those of the package's functions stop a second later.
package unet
