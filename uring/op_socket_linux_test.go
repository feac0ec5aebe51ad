// SPDX-License-Identifier: MIT

package uring_test

import (
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

func init() {
	kernelOp(uring.OpSocket, kernelSocket)
	kernelOp(uring.OpBind, kernelBind)
	kernelOp(uring.OpListen, kernelListen)
	kernelOp(uring.OpAccept, kernelAccept)
	kernelOp(uring.OpConnect, kernelConnect)
	kernelOp(uring.OpShutdown, kernelShutdown)
}

// own closes a descriptor when the test ends, unless the test has closed it.
func own(t testing.TB, fd int) *sys.FD {
	owned := sys.NewFD(fd)
	t.Cleanup(func() { owned.Close() })
	return owned
}

// on names a descriptor in an entry.
func on(fd *sys.FD) uring.FD { return uring.Fd(fd.Int()) }

// openSocket returns a blocking socket.
func openSocket(t testing.TB, domain, typ int) *sys.FD {
	t.Helper()
	fd, err := unix.Socket(domain, typ|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return own(t, fd)
}

// boundSocket returns an IPv4 socket on a free port of the loopback interface.
func boundSocket(t testing.TB, typ int) *sys.FD {
	t.Helper()
	fd := openSocket(t, unix.AF_INET, typ)
	if err := unix.Bind(fd.Int(), &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	return fd
}

// listener returns a TCP socket that listens.
func listener(t testing.TB) *sys.FD {
	t.Helper()
	fd := boundSocket(t, unix.SOCK_STREAM)
	if err := unix.Listen(fd.Int(), 64); err != nil {
		t.Fatal(err)
	}
	return fd
}

// localAddr returns the address of an IPv4 socket.
func localAddr(t testing.TB, fd *sys.FD) netip.AddrPort {
	t.Helper()
	sa, err := unix.Getsockname(fd.Int())
	if err != nil {
		t.Fatal(err)
	}
	in := sa.(*unix.SockaddrInet4)
	return netip.AddrPortFrom(netip.AddrFrom4(in.Addr), uint16(in.Port))
}

// sockaddrOf returns the same address for an entry.
func sockaddrOf(t testing.TB, fd *sys.FD) *uring.Sockaddr {
	t.Helper()
	addr := mustSockaddr(localAddr(t, fd).String())
	keep(t, addr)
	return addr
}

// dial connects a new TCP socket to a listener.
func dial(t testing.TB, to *sys.FD) *sys.FD {
	t.Helper()
	fd := openSocket(t, unix.AF_INET, unix.SOCK_STREAM)
	addr := localAddr(t, to)
	if err := unix.Connect(fd.Int(), &unix.SockaddrInet4{Addr: addr.Addr().As4(), Port: int(addr.Port())}); err != nil {
		t.Fatal(err)
	}
	return fd
}

// tcpPair returns the ends of a TCP connection.
func tcpPair(t testing.TB) (a, b *sys.FD) {
	t.Helper()
	l := listener(t)
	a = dial(t, l)
	fd, _, err := unix.Accept4(l.Int(), unix.SOCK_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	return a, own(t, fd)
}

// unixPair returns two connected Unix sockets.
func unixPair(t testing.TB, typ int) (a, b *sys.FD) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, typ|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return own(t, fds[0]), own(t, fds[1])
}

// abstractSocket returns a Unix socket with a name that the kernel chose.
func abstractSocket(t testing.TB, typ int) (fd *sys.FD, name string) {
	t.Helper()
	fd = openSocket(t, unix.AF_UNIX, typ)
	if err := unix.Bind(fd.Int(), &unix.SockaddrUnix{}); err != nil {
		t.Fatal(err)
	}
	sa, err := unix.Getsockname(fd.Int())
	if err != nil {
		t.Fatal(err)
	}
	return fd, sa.(*unix.SockaddrUnix).Name
}

func sockWrite(t testing.TB, fd *sys.FD, s string) {
	t.Helper()
	if n, err := unix.Write(fd.Int(), []byte(s)); n != len(s) || err != nil {
		t.Fatalf("wrote %d of %d: %v", n, len(s), err)
	}
}

func wantRead(t testing.TB, fd *sys.FD, want string) {
	t.Helper()
	buf := make([]byte, len(want)+1)
	if n, err := unix.Read(fd.Int(), buf); err != nil || string(buf[:n]) != want {
		t.Fatalf("read %q, %v, want %q", buf[:max(n, 0)], err, want)
	}
}

func sparseFiles(t testing.TB, r *uring.Ring, n int) {
	t.Helper()
	if err := r.RegisterFilesSparse(n); err != nil {
		t.Fatal(err)
	}
}

func kernelSocket(t *testing.T) {
	ringtest.NeedOp(t, uring.OpSocket, "5.19")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		do := func(domain, typ, protocol int) uring.CQE {
			return ringtest.Do(t, r, func(e *uring.SQE) { e.Socket(domain, typ, protocol) })
		}
		c := do(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_UDP)
		if c.Res < 0 {
			t.Fatal(c.Err())
		}
		fd := own(t, int(c.Res))
		for name, want := range map[int]int{unix.SO_DOMAIN: unix.AF_INET, unix.SO_TYPE: unix.SOCK_DGRAM, unix.SO_PROTOCOL: unix.IPPROTO_UDP} {
			if got, err := unix.GetsockoptInt(fd.Int(), unix.SOL_SOCKET, name); got != want || err != nil {
				t.Errorf("option %d is %d, %v, want %d", name, got, err, want)
			}
		}
		wantFlags(t, fd, true, true)
		wantErrno(t, do(999, unix.SOCK_STREAM, 0), unix.EAFNOSUPPORT)
		wantErrno(t, do(unix.AF_INET, unix.SOCK_STREAM|1<<30, 0), unix.EINVAL)
		socketDirect(t, r)
	})
}

// wantFlags compares the flags that an operation gave to a new descriptor.
func wantFlags(t testing.TB, fd *sys.FD, cloexec, nonblock bool) {
	t.Helper()
	d, err1 := unix.FcntlInt(uintptr(fd.Int()), unix.F_GETFD, 0)
	f, err2 := unix.FcntlInt(uintptr(fd.Int()), unix.F_GETFL, 0)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	if (d&unix.FD_CLOEXEC != 0) != cloexec || (f&unix.O_NONBLOCK != 0) != nonblock {
		t.Errorf("descriptor flags %#x, file flags %#x", d, f)
	}
}

func socketDirect(t *testing.T, r *uring.Ring) {
	do := func(typ int, slot uring.Slot) uring.CQE {
		return ringtest.Do(t, r, func(e *uring.SQE) { e.Socket(unix.AF_INET, typ, 0).SetSlot(slot) })
	}
	wantErrno(t, do(unix.SOCK_STREAM, 0), unix.ENXIO) // there is no table
	sparseFiles(t, r, 2)
	wantRes(t, do(unix.SOCK_STREAM, 0), 0)
	wantRes(t, do(unix.SOCK_STREAM, uring.SlotAuto), 1)
	wantErrno(t, do(unix.SOCK_STREAM, uring.SlotAuto), unix.ENFILE)
	wantErrno(t, do(unix.SOCK_STREAM, 2), unix.EINVAL)
	wantErrno(t, do(unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 1), unix.EINVAL)
	// The slot holds a socket without a peer.
	wantErrno(t, ringtest.Do(t, r, func(e *uring.SQE) { e.Shutdown(uring.FixedFd(1), 2) }), unix.ENOTCONN)
	wantErrno(t, ringtest.Do(t, r, func(e *uring.SQE) { e.Shutdown(uring.FixedFd(2), 2) }), unix.EBADF)
}

func kernelBind(t *testing.T) {
	ringtest.NeedOp(t, uring.OpBind, "6.11")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		bind := func(fd uring.FD, addr *uring.Sockaddr) uring.CQE {
			return ringtest.Do(t, r, func(e *uring.SQE) { e.Bind(fd, addr) })
		}
		any4 := mustSockaddr("127.0.0.1:0")
		keep(t, any4)
		a, b := openSocket(t, unix.AF_INET, unix.SOCK_STREAM), openSocket(t, unix.AF_INET, unix.SOCK_STREAM)
		wantRes(t, bind(on(a), any4), 0)
		taken := sockaddrOf(t, a)
		if got := localAddr(t, a); got.Addr() != netip.MustParseAddr("127.0.0.1") || got.Port() == 0 {
			t.Errorf("bound to %v", got)
		}
		wantErrno(t, bind(on(b), taken), unix.EADDRINUSE)
		registerFiles(t, r, b.Int())
		wantRes(t, bind(uring.FixedFd(0), any4), 0)

		u := openSocket(t, unix.AF_UNIX, unix.SOCK_STREAM)
		unnamed := mustUnix("")
		keep(t, unnamed)
		wantRes(t, bind(on(u), unnamed), 0)
		if sa, err := unix.Getsockname(u.Int()); err != nil || len(sa.(*unix.SockaddrUnix).Name) < 2 {
			t.Errorf("binding to no name gave %+v, %v", sa, err)
		}
	})
}

func kernelListen(t *testing.T) {
	ringtest.NeedOp(t, uring.OpListen, "6.11")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		listen := func(fd uring.FD) uring.CQE {
			return ringtest.Do(t, r, func(e *uring.SQE) { e.Listen(fd, 8) })
		}
		a, b := boundSocket(t, unix.SOCK_STREAM), boundSocket(t, unix.SOCK_STREAM)
		wantRes(t, listen(on(a)), 0)
		dial(t, a)
		registerFiles(t, r, b.Int())
		wantRes(t, listen(uring.FixedFd(0)), 0)
		dial(t, b)
		wantErrno(t, listen(on(boundSocket(t, unix.SOCK_DGRAM))), unix.EOPNOTSUPP)
	})
}

func kernelAccept(t *testing.T) {
	t.Run("one", func(t *testing.T) { ringtest.OverFlavours(t, acceptOne) })
	t.Run("unix", func(t *testing.T) { ringtest.OverFlavours(t, acceptUnix) })
	t.Run("direct", func(t *testing.T) { ringtest.OverFlavours(t, acceptDirect) })
	t.Run("multishot", func(t *testing.T) { ringtest.OverFlavours(t, acceptMultishot) })
	t.Run("multishot direct", func(t *testing.T) { ringtest.OverFlavours(t, acceptMultishotDirect) })
	t.Run("flags", func(t *testing.T) {
		ringtest.NeedKernel(t, "IORING_ACCEPT_DONTWAIT", "6.10")
		ringtest.OverFlavours(t, acceptFlags)
	})
}

func acceptOne(t *testing.T, r *uring.Ring) {
	l := listener(t)
	peer := new(uring.Sockaddr)
	keep(t, peer)
	for _, flags := range []int{0, unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK} {
		push(t, r).Accept(on(l), peer, flags).SetUserData(1)
		wantQuiet(t, r)
		client := dial(t, l)
		c := await(t, r, 1)
		if c.Res < 0 {
			t.Fatal(c.Err())
		}
		wantFlags(t, own(t, int(c.Res)), flags != 0, flags != 0)
		if peer.AddrPort() != localAddr(t, client) || peer.Len() != 16 {
			t.Errorf("peer %v in %d bytes, want %v", peer.AddrPort(), peer.Len(), localAddr(t, client))
		}
	}
	registerFiles(t, r, l.Int())
	dial(t, l)
	c := ringtest.Do(t, r, func(e *uring.SQE) { e.Accept(uring.FixedFd(0), nil, 0) })
	if c.Res < 0 {
		t.Fatal(c.Err())
	}
	own(t, int(c.Res))
	wantErrno(t, ringtest.Do(t, r, func(e *uring.SQE) { e.Accept(on(boundSocket(t, unix.SOCK_STREAM)), nil, 0) }), unix.EINVAL)
	wantErrno(t, ringtest.Do(t, r, func(e *uring.SQE) { e.Accept(on(l), nil, unix.SOCK_STREAM) }), unix.EINVAL)
}

func acceptUnix(t *testing.T, r *uring.Ring) {
	l, name := abstractSocket(t, unix.SOCK_STREAM)
	if err := unix.Listen(l.Int(), 8); err != nil {
		t.Fatal(err)
	}
	client, clientName := abstractSocket(t, unix.SOCK_STREAM)
	to, peer := mustUnix(name), new(uring.Sockaddr)
	keep(t, to, peer)
	wantRes(t, ringtest.Do(t, r, func(e *uring.SQE) { e.Connect(on(client), to) }), 0)
	c := ringtest.Do(t, r, func(e *uring.SQE) { e.Accept(on(l), peer, unix.SOCK_CLOEXEC) })
	if c.Res < 0 {
		t.Fatal(c.Err())
	}
	own(t, int(c.Res))
	if peer.UnixPath() != clientName {
		t.Errorf("peer %q, want %q", peer.UnixPath(), clientName)
	}
}

func acceptDirect(t *testing.T, r *uring.Ring) {
	l := listener(t)
	sparseFiles(t, r, 3)
	accept := func(slot uring.Slot, flags int) uring.CQE {
		return ringtest.Do(t, r, func(e *uring.SQE) { e.Accept(on(l), nil, flags).SetSlot(slot) })
	}
	wantErrno(t, accept(0, unix.SOCK_CLOEXEC), unix.EINVAL)
	clients := []*sys.FD{dial(t, l), dial(t, l)}
	wantRes(t, accept(2, 0), 0)
	auto := accept(uring.SlotAuto, 0)
	if auto.Res != 0 && auto.Res != 1 {
		t.Fatalf("automatic slot: %+v (%v)", auto, auto.Err())
	}
	for i, slot := range []int{2, int(auto.Res)} {
		c := ringtest.Do(t, r, func(e *uring.SQE) { e.Send(uring.FixedFd(slot), goldenText, 0) })
		wantRes(t, c, len(goldenText))
		wantRead(t, clients[i], string(goldenText))
	}
}

// goldenText is text to send; it is never written.
var goldenText = []byte("some text to send")

func acceptMultishot(t *testing.T, r *uring.Ring) {
	l := listener(t)
	arm := func(e *uring.SQE) { e.AcceptMultishot(on(l), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK).SetUserData(1) }
	arm(push(t, r))
	wantQuiet(t, r)
	for range 3 {
		dial(t, l)
		c := await(t, r, 1)
		if wantMore(t, c, true); c.Res < 0 {
			t.Fatal(c.Err())
		}
		wantFlags(t, own(t, int(c.Res)), true, true)
	}
	// More connections than the smallest CQ has slots.
	clients := map[netip.AddrPort]bool{}
	for range 7 {
		clients[localAddr(t, dial(t, l))] = true
		runTaskWork(t, r)
	}
	for range 7 {
		c := await(t, r, 1)
		if c.Res < 0 {
			t.Fatal(c.Err())
		}
		sa, err := unix.Getpeername(own(t, int(c.Res)).Int())
		if err != nil {
			t.Fatal(err)
		}
		in := sa.(*unix.SockaddrInet4)
		delete(clients, netip.AddrPortFrom(netip.AddrFrom4(in.Addr), uint16(in.Port)))
		if !c.Has(uring.CQEMore) {
			if r.CQEntries() > 10 {
				t.Fatalf("accept ended with %+v", c)
			}
			arm(push(t, r))
		}
	}
	if len(clients) != 0 {
		t.Errorf("connections of %v are lost", clients)
	}
	cancelAll(t, r, 1)
	bad := ringtest.Do(t, r, func(e *uring.SQE) { e.AcceptMultishot(on(boundSocket(t, unix.SOCK_STREAM)), 0) })
	wantErrno(t, bad, unix.EINVAL)
	wantMore(t, bad, false)
}

func acceptMultishotDirect(t *testing.T, r *uring.Ring) {
	l := listener(t)
	sparseFiles(t, r, 2)
	push(t, r).AcceptMultishot(on(l), 0).SetSlot(uring.SlotAuto).SetUserData(1)
	clients := map[int32]*sys.FD{}
	for range 2 {
		client := dial(t, l)
		c := await(t, r, 1)
		wantMore(t, c, true)
		clients[c.Res] = client
	}
	dial(t, l)
	c := await(t, r, 1)
	wantErrno(t, c, unix.ENFILE)
	wantMore(t, c, false)
	for slot, client := range clients {
		sockWrite(t, client, "x")
		buf := make([]byte, 2)
		keep(t, buf)
		wantRes(t, ringtest.Do(t, r, func(e *uring.SQE) { e.Recv(uring.FixedFd(int(slot)), buf, 0) }), 1)
	}
}

func acceptFlags(t *testing.T, r *uring.Ring) {
	l := listener(t)
	c := ringtest.Do(t, r, func(e *uring.SQE) { e.Accept(on(l), nil, 0).SetAcceptFlags(uring.AcceptDontWait) })
	wantErrno(t, c, unix.EAGAIN)
	dial(t, l)
	for _, f := range []uring.AcceptFlags{uring.AcceptDontWait, uring.AcceptPollFirst} {
		dial(t, l)
		c := ringtest.Do(t, r, func(e *uring.SQE) { e.Accept(on(l), nil, 0).SetAcceptFlags(f) })
		if c.Res < 0 {
			t.Fatalf("flags %#x: %v", f, c.Err())
		}
		own(t, int(c.Res))
	}
}

func kernelConnect(t *testing.T) {
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		l := listener(t)
		to := sockaddrOf(t, l)
		a, b := openSocket(t, unix.AF_INET, unix.SOCK_STREAM), openSocket(t, unix.AF_INET, unix.SOCK_STREAM)
		wantRes(t, ringtest.Do(t, r, func(e *uring.SQE) { e.Connect(on(a), to) }), 0)
		fd, _, err := unix.Accept4(l.Int(), unix.SOCK_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		own(t, fd)
		wantErrno(t, ringtest.Do(t, r, func(e *uring.SQE) { e.Connect(on(a), to) }), unix.EISCONN)

		// A chain: connect, then send.
		registerFiles(t, r, b.Int())
		push(t, r).Connect(uring.FixedFd(0), to).SetFlags(uring.SQELink).SetUserData(1)
		push(t, r).Send(uring.FixedFd(0), goldenText, 0).SetUserData(2)
		m := byUserData(t, r, 2)
		wantRes(t, m[1], 0)
		wantRes(t, m[2], len(goldenText))
		fd, _, err = unix.Accept4(l.Int(), unix.SOCK_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		wantRead(t, own(t, fd), string(goldenText))

		nobody := sockaddrOf(t, boundSocket(t, unix.SOCK_STREAM))
		c := openSocket(t, unix.AF_INET, unix.SOCK_STREAM)
		wantErrno(t, ringtest.Do(t, r, func(e *uring.SQE) { e.Connect(on(c), nobody) }), unix.ECONNREFUSED)
	})
}

func kernelShutdown(t *testing.T) {
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		do := func(fd uring.FD, how int) uring.CQE {
			return ringtest.Do(t, r, func(e *uring.SQE) { e.Shutdown(fd, how) })
		}
		a, b := tcpPair(t)
		wantRes(t, do(on(a), unix.SHUT_WR), 0)
		wantRead(t, b, "")
		sockWrite(t, b, "the other way")
		wantRead(t, a, "the other way")
		registerFiles(t, r, b.Int())
		wantRes(t, do(uring.FixedFd(0), unix.SHUT_RDWR), 0)
		wantRead(t, a, "")
		wantErrno(t, do(on(boundSocket(t, unix.SOCK_STREAM)), unix.SHUT_WR), unix.ENOTCONN)
		wantErrno(t, do(on(a), 9), unix.EINVAL)
		rd, _ := osPipe(t)
		wantErrno(t, do(fdOf(rd), unix.SHUT_RD), unix.ENOTSOCK)
		shutdownEndsRecv(t, r)
	})
}

// shutdownEndsRecv checks that shutdown ends a receive that close would not end.
func shutdownEndsRecv(t *testing.T, r *uring.Ring) {
	a, _ := unixPair(t, unix.SOCK_STREAM)
	buf := make([]byte, 1)
	keep(t, buf)
	push(t, r).Recv(on(a), buf, 0).SetUserData(1)
	wantQuiet(t, r)
	push(t, r).Shutdown(on(a), unix.SHUT_RD).SetUserData(2)
	m := byUserData(t, r, 2)
	wantRes(t, m[1], 0)
	wantErrno(t, m[2], syscall.Errno(0))
}
