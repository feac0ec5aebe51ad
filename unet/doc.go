// SPDX-License-Identifier: MIT

// Package unet provides the connections and listeners of package net with less CPU time
// per message. It also sends and receives datagrams in batches and in segments. Listen,
// Dial and ListenPacket replace package net's functions of the same names; ListenConfig
// and Dialer replace the types.
//
// # Model
//
// Package net wakes each reader separately, and the reader then makes a system call to
// receive. Package unet has a few drivers, one for every four processors. A driver polls
// for ready sockets with edge-triggered epoll. It receives for all waiting readers with
// one system call (io_uring), directly into their buffers, and then wakes them. If only
// one reader waits, the receive is a plain system call. A reader that does not have to
// wait receives by itself. Writes are plain system calls that do not block.
//
// A driver with few active sockets, but more than one, polls for up to 100 µs before it
// sleeps. After polls without events it polls less often. A sleeping driver uses neither
// a processor nor a thread. If computing goroutines occupy every P, calls that are about
// to wait do the driver's work. While a driver has only one active socket, the calls of
// that socket wait in Go's netpoller, as in package net. So do those of a socket whose
// messages have 8 KiB or more. A socket needs a second descriptor for that.
//
// A datagram socket stays a socket of package net and has no driver. One reader empties
// one socket, so there is no work to share. A [BatchConn] receives and sends several
// datagrams in one system call.
//
// Nothing is received before Read is called, so a slow reader costs no memory beyond the
// kernel's buffers (SetReadBuffer). No data is kept after a Write returns.
//
// # Behaviour
//
// Connections behave as in package net. At the end of a stream Read returns io.EOF
// itself; every other error is a *net.OpError. It wraps [os.ErrDeadlineExceeded] after a
// deadline and [net.ErrClosed] after Close. Deadlines can be changed while a call waits.
// Close ends waiting calls. CloseRead and CloseWrite close one direction of a connection.
// [TCPConn], [UnixConn], [UDPConn], [UnixgramConn], [TCPListener] and [UnixListener] have
// the methods of package net's types. The garbage collector closes sockets that are
// dropped without Close. Package net resolves names and tries the addresses. In a bubble
// of testing/synctest a waiting call is not durably blocked and deadlines take real time,
// as in package net.
//
// Differences: a type assertion to *net.TCPConn fails; assert an interface that has the
// method instead. net.Buffers.WriteTo makes one system call only on connections of
// package net; use Writev. docs/conn.md lists all differences.
//
// # Choosing
//
// The package's functions choose automatically: where io_uring is absent or forbidden,
// drivers receive by plain system calls, and [Backend] returns the reason. A [System]
// with a [Mode] forces a choice. If rings are forced and not available, the error names
// the setting to change. RINGSIDE_BACKEND=plain in the environment turns io_uring off,
// for example to find the cause of a problem. Rings need Linux 5.11, and ModePlain needs
// Linux. On other systems all sockets are package net's. With the automatic choice, a
// socket also stays package net's if descriptors or memory for the driver are lacking.
//
// # Ownership and concurrency
//
// A buffer belongs to the connection until the call returns. No call returns while the
// kernel may still use its buffer. All methods may be called concurrently. Reads on one
// connection run one after the other, and so do writes. Reads and writes do not wait for
// each other. The drivers start with the first socket of a System and stop when its last
// socket is closed. The drivers of the default system, which the package's functions use,
// stop 100 to 200 ms later.
package unet
