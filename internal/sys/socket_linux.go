// SPDX-License-Identifier: MIT

package sys

import (
	"encoding/binary"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Flags of socket calls that differ between systems.
const (
	MsgDontWait     = unix.MSG_DONTWAIT
	MsgNoSignal     = unix.MSG_NOSIGNAL
	MsgCmsgCloexec  = unix.MSG_CMSG_CLOEXEC
	MsgTrunc        = unix.MSG_TRUNC
	TCPUserTimeout  = unix.TCP_USER_TIMEOUT
	UDPGRO          = unix.UDP_GRO
	SpliceMove      = unix.SPLICE_F_MOVE
	SpliceNonblock  = unix.SPLICE_F_NONBLOCK
	SpliceChunk     = 1 << 20
	sockCallBlocked = 64 << 10 // copying more than this takes long enough to enter the scheduler
)

// SockRecv is recv(2) that does not block, whether or not the descriptor is
// non-blocking. It enters the scheduler only when the copy may be long.
func SockRecv(fd int, p []byte, flags int) (int, syscall.Errno) {
	p, errno := faultSlice("recv", p)
	if errno != 0 {
		return 0, errno
	}
	flags |= unix.MSG_DONTWAIT
	if len(p) > sockCallBlocked {
		n, _, errno := syscall.Syscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(SlicePointer(p)), uintptr(len(p)), uintptr(flags), 0, 0)
		return result(n, errno), errno
	}
	wakeMonitor()
	n, _, errno := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(SlicePointer(p)), uintptr(len(p)), uintptr(flags), 0, 0)
	return result(n, errno), errno
}

// SockSend is send(2) that does not block, whether or not the descriptor is
// non-blocking; no signal is raised when the peer has closed.
func SockSend(fd int, p []byte, flags int) (int, syscall.Errno) {
	p, errno := faultSlice("send", p)
	if errno != 0 {
		return 0, errno
	}
	flags |= unix.MSG_NOSIGNAL | unix.MSG_DONTWAIT
	if len(p) > sockCallBlocked {
		n, _, errno := syscall.Syscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(SlicePointer(p)), uintptr(len(p)), uintptr(flags), 0, 0)
		return result(n, errno), errno
	}
	wakeMonitor()
	n, _, errno := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(SlicePointer(p)), uintptr(len(p)), uintptr(flags), 0, 0)
	return result(n, errno), errno
}

func result(n uintptr, errno syscall.Errno) int {
	if errno != 0 {
		return 0
	}
	return int(n)
}

// SockSendMsg is sendmsg(2), without a signal; msg points at a struct msghdr
// that keeps what it names reachable.
func SockSendMsg(fd int, msg unsafe.Pointer, flags int) (int, syscall.Errno) {
	if _, errno := fault("sendmsg", 1); errno != 0 {
		return 0, errno
	}
	n, _, errno := syscall.Syscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(msg), uintptr(flags|unix.MSG_NOSIGNAL))
	return result(n, errno), errno
}

// SockPart is struct iovec: one buffer of a message.
type SockPart = unix.Iovec

// SockMsg is struct mmsghdr: a message of a batch, and its length.
type SockMsg struct {
	hdr unix.Msghdr
	n   uint32
}

// Set makes m a message of one buffer. name is the address to send to, or room
// for the sender's; it and control may be empty. m keeps all of them reachable.
func (m *SockMsg) Set(name []byte, part *SockPart, p, control []byte) {
	*part = unix.Iovec{Base: unsafe.SliceData(p)}
	part.SetLen(len(p))
	*m = SockMsg{hdr: unix.Msghdr{Iov: part}}
	m.hdr.SetIovlen(1)
	if len(name) > 0 {
		m.hdr.Name, m.hdr.Namelen = &name[0], uint32(len(name))
	}
	m.SetControl(control)
}

// SetControl sets the control data.
func (m *SockMsg) SetControl(control []byte) {
	if len(control) > 0 {
		m.hdr.Control = &control[0]
		m.hdr.SetControllen(len(control))
	}
}

// Extend appends the part behind the last one of m, which lies next to it in memory.
func (m *SockMsg) Extend(part *SockPart, p []byte) {
	*part = unix.Iovec{Base: unsafe.SliceData(p)}
	part.SetLen(len(p))
	m.hdr.SetIovlen(int(m.hdr.Iovlen) + 1)
}

// Parts returns the number of buffers.
func (m *SockMsg) Parts() int { return int(m.hdr.Iovlen) }

// Len returns how many bytes were sent or received; NameLen, ControlLen and
// Flags belong to a received message.
func (m *SockMsg) Len() int { return int(m.n) }

// NameLen returns the length of the sender's address.
func (m *SockMsg) NameLen() int { return int(m.hdr.Namelen) }

// ControlLen returns the length of the control data.
func (m *SockMsg) ControlLen() int { return int(m.hdr.Controllen) }

// Flags returns the MSG_ flags of the message.
func (m *SockMsg) Flags() int { return int(m.hdr.Flags) }

// SegmentControlSize is room for the control data of segments.
const SegmentControlSize = 24

// SegmentControl returns the control data by which sendmsg cuts the data of one call
// into datagrams of size bytes (UDP_SEGMENT). It is stored in b, which has room for
// SegmentControlSize bytes.
func SegmentControl(b []byte, size int) []byte {
	b = controlData(b, unix.IPPROTO_UDP, unix.UDP_SEGMENT, 2)
	binary.NativeEndian.PutUint16(b[unix.CmsgLen(0):], uint16(size))
	return b
}

// controlData prepares b for one piece of control data of n bytes.
func controlData(b []byte, level, typ int32, n int) []byte {
	b = b[:unix.CmsgSpace(n)]
	clear(b)
	h := unix.Cmsghdr{Level: level, Type: typ}
	h.SetLen(unix.CmsgLen(n))
	copy(b, unsafe.Slice((*byte)(unsafe.Pointer(&h)), unix.SizeofCmsghdr))
	return b
}

// Of linux/tls.h.
const (
	tlsTX            = 1
	tlsSetRecordType = 1
)

// SockTLS attaches the kernel's TLS to a connected TCP socket (TCP_ULP). Nothing is
// encrypted before [SockTLSSend]. The error is ENOENT if the kernel has no TLS, and ENOTCONN
// if the socket is not connected.
func SockTLS(fd int) syscall.Errno {
	if _, errno := fault("tcp_ulp", 1); errno != 0 {
		return errno
	}
	return errnoOf(unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_ULP, "tls"))
}

// HasTLS returns 0 if the kernel has TLS.
func HasTLS() syscall.Errno {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return errnoOf(err)
	}
	defer unix.Close(fd)
	errno := SockTLS(fd)
	if errno == unix.ENOTCONN {
		return 0
	}
	return errno
}

// SockTLSSend makes the kernel encrypt what is sent from now on; info is a struct
// tls12_crypto_info of the cipher (TLS_TX).
func SockTLSSend(fd int, info []byte) syscall.Errno {
	if _, errno := fault("tls_tx", 1); errno != 0 {
		return errno
	}
	return errnoOf(unix.SetsockoptString(fd, unix.SOL_TLS, tlsTX, string(info)))
}

// SockTLSRecord is sendmsg(2) of a record with a type (TLS_SET_RECORD_TYPE). It does not
// block. It first sends what the kernel has kept of a record; with an empty p nothing else.
func SockTLSRecord(fd int, typ byte, p []byte) syscall.Errno {
	control := controlData(make([]byte, unix.CmsgSpace(1)), unix.SOL_TLS, tlsSetRecordType, 1)
	control[unix.CmsgLen(0)] = typ
	var part SockPart
	var msg SockMsg
	msg.Set(nil, &part, p, control)
	_, errno := SockSendMsg(fd, unsafe.Pointer(&msg.hdr), unix.MSG_DONTWAIT)
	return errno
}

// errnoOf returns the error number of a call of package unix, which returns no other errors.
func errnoOf(err error) syscall.Errno {
	errno, _ := err.(syscall.Errno)
	return errno
}

// SegmentSize returns the size of the datagrams that the kernel has joined to one
// (UDP_GRO), from the control data of a received message; 0 if it has not.
func SegmentSize(control []byte) int {
	for len(control) > 0 {
		h, data, rest, err := unix.ParseOneSocketControlMessage(control)
		if err != nil {
			return 0
		}
		if h.Level == unix.IPPROTO_UDP && h.Type == unix.UDP_GRO && len(data) >= 4 {
			return int(binary.NativeEndian.Uint32(data))
		}
		control = rest
	}
	return 0
}

// SockRecvMany is recvmmsg(2), or recvmsg(2) for one message, that does not
// block: it returns how many messages were there.
func SockRecvMany(fd int, msgs []SockMsg, flags int) (int, syscall.Errno) {
	msgs, errno := faultSlice("recvmmsg", msgs)
	if errno != 0 {
		return 0, errno
	}
	flags |= unix.MSG_DONTWAIT
	if len(msgs) == 1 && msgs[0].hdr.Iov.Len <= sockCallBlocked {
		wakeMonitor()
		n, _, errno := syscall.RawSyscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&msgs[0].hdr)), uintptr(flags))
		if errno != 0 {
			return 0, errno
		}
		msgs[0].n = uint32(n)
		return 1, 0
	}
	n, _, errno := syscall.Syscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(SlicePointer(msgs)), uintptr(len(msgs)),
		uintptr(flags), 0, 0)
	return result(n, errno), errno
}

// SockSendMany is sendmmsg(2), or sendmsg(2) for one message, that does not block
// and raises no signal: it returns how many messages were sent, at least one when
// there is no error.
func SockSendMany(fd int, msgs []SockMsg, flags int) (int, syscall.Errno) {
	msgs, errno := faultSlice("sendmmsg", msgs)
	if errno != 0 {
		return 0, errno
	}
	flags |= unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL
	if len(msgs) == 1 && msgs[0].hdr.Iov.Len <= sockCallBlocked {
		wakeMonitor()
		n, _, errno := syscall.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&msgs[0].hdr)), uintptr(flags))
		if errno != 0 {
			return 0, errno
		}
		msgs[0].n = uint32(n)
		return 1, 0
	}
	n, _, errno := syscall.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(SlicePointer(msgs)), uintptr(len(msgs)),
		uintptr(flags), 0, 0)
	return result(n, errno), errno
}

// SockAccept is accept4(2): the new socket is non-blocking and closed on exec. addr
// receives the peer's address, of which n bytes are valid. accept4 has no flag that
// forbids waiting, and another process that shares the listener may have cleared
// O_NONBLOCK. SockAccept then polls for a connection first and returns EAGAIN if there
// is none. It waits only if the other process takes the connection in between, and then
// enters the scheduler.
func SockAccept(fd int, addr []byte) (nfd, n int, errno syscall.Errno) {
	if _, errno := fault("accept", 1); errno != 0 {
		return -1, 0, errno
	}
	if flags, _, errno := syscall.RawSyscall(unix.SYS_FCNTL, uintptr(fd), unix.F_GETFL, 0); errno == 0 && flags&unix.O_NONBLOCK == 0 {
		if n, errno := PollNow([]PollFD{{Fd: int32(fd), Events: unix.POLLIN}}); n == 0 && errno == 0 {
			return -1, 0, syscall.EAGAIN
		}
	}
	length := uint32(len(addr))
	r, _, errno := syscall.Syscall6(unix.SYS_ACCEPT4, uintptr(fd), uintptr(SlicePointer(addr)),
		uintptr(unsafe.Pointer(&length)), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
	if errno != 0 {
		return -1, 0, errno
	}
	return int(r), int(length), 0
}

// SockName is getsockname(2), or with peer getpeername(2). It returns how many
// bytes of addr are valid. The peer of a connection that was reset comes from SO_PEERNAME,
// for which the connection need not be established.
func SockName(fd int, addr []byte, peer bool) (int, syscall.Errno) {
	length := uint32(len(addr))
	call := uintptr(unix.SYS_GETSOCKNAME)
	if peer {
		call = unix.SYS_GETPEERNAME
	}
	_, _, errno := syscall.RawSyscall(call, uintptr(fd), uintptr(SlicePointer(addr)), uintptr(unsafe.Pointer(&length)))
	if peer && errno == syscall.ENOTCONN {
		const peerName = 28 // SO_PEERNAME, which fails if length is longer than the address
		for _, length = range [...]uint32{unix.SizeofSockaddrInet6, unix.SizeofSockaddrInet4} {
			_, _, errno = syscall.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, peerName,
				uintptr(SlicePointer(addr)), uintptr(unsafe.Pointer(&length)), 0)
			if errno == 0 {
				break
			}
		}
	}
	if errno != 0 {
		return 0, errno
	}
	return int(length), 0
}

// InterfaceName returns the name of a network interface by its number, in the namespace of a socket.
func InterfaceName(fd int, index uint32) (string, error) {
	r, err := unix.NewIfreq("")
	if err != nil {
		return "", err
	}
	r.SetUint32(index)
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFNAME, r); err != nil {
		return "", err
	}
	return r.Name(), nil
}

// InterfaceIndex returns the number of a network interface by its name, in the namespace of a socket.
func InterfaceIndex(fd int, name string) (uint32, error) {
	r, err := unix.NewIfreq(name)
	if err != nil {
		return 0, err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, r); err != nil {
		return 0, err
	}
	return r.Uint32(), nil
}

// SockInt reads an integer option of a socket.
func SockInt(fd, level, option int) (int, error) { return unix.GetsockoptInt(fd, level, option) }

// SetSockInt sets one.
func SetSockInt(fd, level, option, value int) error {
	if _, errno := fault("setsockopt", 1); errno != 0 {
		return errno
	}
	return unix.SetsockoptInt(fd, level, option, value)
}

// SockMPTCP reports whether a connection uses multipath TCP and has not fallen
// back to TCP.
func SockMPTCP(fd int) bool {
	protocol, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	if err != nil || protocol != unix.IPPROTO_MPTCP {
		return false
	}
	_, err = unix.GetsockoptInt(fd, unix.SOL_MPTCP, 1) // MPTCP_INFO
	return err != unix.EOPNOTSUPP && err != unix.ENOPROTOOPT
}

// SockLinger sets SO_LINGER: seconds below 0 turn it off.
func SockLinger(fd, seconds int) error {
	if _, errno := fault("setsockopt", 1); errno != 0 {
		return errno
	}
	l := unix.Linger{Onoff: 1, Linger: int32(seconds)}
	if seconds < 0 {
		l = unix.Linger{}
	}
	return unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &l)
}

// SockLingers reports whether closing a socket waits until data was sent, because SO_LINGER is set
// to a time.
func SockLingers(fd int) bool {
	l, err := unix.GetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER)
	return err == nil && l.Onoff != 0 && l.Linger != 0
}

// SockReusePort sets SO_REUSEPORT: several sockets of the same user may listen on one
// address, and connections are spread over them. The error is a bare errno.
func SockReusePort(fd int) error {
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
}

// SockShutdown is shutdown(2).
func SockShutdown(fd, how int) error {
	if _, errno := fault("shutdown", 1); errno != 0 {
		return errno
	}
	return syscall.Shutdown(fd, how)
}

// SockSendFile is sendfile(2) from the position of in.
func SockSendFile(out, in, n int) (int, syscall.Errno) {
	n, errno := fault("sendfile", n)
	if errno != 0 {
		return 0, errno
	}
	r, _, errno := syscall.Syscall6(unix.SYS_SENDFILE, uintptr(out), uintptr(in), 0, uintptr(n), 0, 0)
	return result(r, errno), errno
}

// SockSplice is splice(2) without offsets.
func SockSplice(in, out, n, flags int) (int, syscall.Errno) {
	n, errno := fault("splice", n)
	if errno != 0 {
		return 0, errno
	}
	r, _, errno := syscall.Syscall6(unix.SYS_SPLICE, uintptr(in), 0, uintptr(out), 0, uintptr(n), uintptr(flags))
	return result(r, errno), errno
}

// SplicePipe opens a pipe that neither blocks nor survives an exec, as large as
// [SpliceChunk] where the limits allow it.
func SplicePipe() (r, w *FD, err error) {
	if _, errno := fault("pipe2", 1); errno != 0 {
		return nil, nil, Error("pipe2", errno)
	}
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, nil, Error("pipe2", err.(syscall.Errno))
	}
	_, _ = unix.FcntlInt(uintptr(p[0]), unix.F_SETPIPE_SZ, SpliceChunk) // a smaller pipe works
	return NewFD(p[0]), NewFD(p[1]), nil
}
