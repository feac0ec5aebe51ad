// SPDX-License-Identifier: MIT

// Package unet has package net's connections, listeners and sockets for
// datagrams, driven at a lower price: [Listen], [Dial] and [ListenPacket] take
// the place of the functions of the same name, [ListenConfig] and [Dialer] that
// of the types.
//
// # Model
//
// Package net wakes each reader for itself, which then makes a call of its own
// to receive. Here a few drivers, one for each four processors, learn from one
// call what has become ready (edge-triggered epoll), receive for all who wait
// in one more (io_uring, each receive into the reader's own buffer, none of
// them waiting), and then wake the readers, who have their data. A lone receive
// is a plain call. A reader that is not waiting tries for itself when data is
// known to be there, and writes are plain calls that do not block. A driver
// with little to do looks for more for up to 100 µs before it sleeps, and less
// and less often when that is in vain; asleep it takes neither processor nor
// thread.
//
// Nothing is received ahead of a Read, so that a slow reader costs no memory
// beyond the kernel's own buffers (SetReadBuffer), and nothing is kept after a
// Write has returned.
//
// # Behaviour
//
// It is package net's to the letter: a bare io.EOF at the end, a *net.OpError
// around everything else, [os.ErrDeadlineExceeded] and [net.ErrClosed] inside,
// deadlines that can be moved while a call waits, half-closed connections,
// Close that ends what waits. [TCPConn], [UnixConn], [UDPConn], [UnixgramConn],
// [TCPListener] and [UnixListener] have the methods of package net's types;
// what is dropped without Close is closed by the garbage collector. Names are
// resolved and addresses tried by package net.
//
// What differs: a program that asserts that a connection is a *net.TCPConn does
// not find it, an interface with the method that it wants it does. And
// net.Buffers.WriteTo uses one system call with package net's own connections
// only: use Writev.
//
// # Choosing
//
// The functions choose automatically: where io_uring is absent or forbidden
// they make the same receives with plain calls, and [Backend] returns the reason.
// A [System] with a [Mode] forces a choice; forcing rings where they cannot be had
// is an error that names what to change. RINGSIDE_IOURING=off in the environment
// forbids io_uring for support cases. Rings need Linux 5.11; plain calls (ModePlain)
// need Linux only. On other systems everything is package net's. Where the choice
// was automatic, a socket that cannot be driven for want of descriptors or memory
// stays package net's, too.
//
// # Ownership and concurrency
//
// A buffer is the connection's until the call returns; no call returns while
// the kernel may still touch it. All methods may be called concurrently. Reads
// follow each other, and so do writes; neither holds up the other. The drivers
// are started for the first socket of a System and stopped when the last one is
// closed.
package unet
