// SPDX-License-Identifier: MIT

package uring_test

import (
	"bytes"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

func init() {
	kernelOp(uring.OpRecv, kernelRecv)
	kernelOp(uring.OpRecvMsg, kernelRecvMsg)
	kernelOp(uring.OpRecvZC, kernelRecvZC)
}

func kernelRecv(t *testing.T) {
	t.Run("stream", func(t *testing.T) { ringtest.OverFlavours(t, recvStream) })
	t.Run("nonempty", func(t *testing.T) { ringtest.OverFlavours(t, recvNonEmpty) })
	t.Run("select", func(t *testing.T) { ringtest.OverFlavours(t, recvSelect) })
	t.Run("multishot", func(t *testing.T) { ringtest.OverFlavours(t, recvMultishot) })
	t.Run("multishot overflow", func(t *testing.T) { ringtest.OverFlavours(t, recvMultishotOverflow) })
	t.Run("multishot cancel", func(t *testing.T) { ringtest.OverFlavours(t, recvMultishotCancel) })
	t.Run("bundle", func(t *testing.T) {
		ringtest.NeedKernel(t, "IORING_RECVSEND_BUNDLE", "6.10")
		ringtest.OverFlavours(t, recvBundle)
	})
	t.Run("limit", func(t *testing.T) {
		ringtest.NeedKernel(t, "limits of a multishot IORING_OP_RECV", "6.16")
		ringtest.OverFlavours(t, recvMultishotLimit)
	})
}

func recvStream(t *testing.T, r *uring.Ring) {
	a, b := unixPair(t, unix.SOCK_STREAM)
	registerFiles(t, r, b.Int())
	buf := make([]byte, 8)
	keep(t, buf)
	recv := func(fd uring.FD, flags int, net uring.NetFlags) uring.CQE {
		return ringtest.Do(t, r, func(e *uring.SQE) { e.Recv(fd, buf, flags).SetNetFlags(net) })
	}
	sockWrite(t, a, "abc")
	wantRes(t, recv(on(b), unix.MSG_PEEK, 0), 3)
	wantRes(t, recv(uring.FixedFd(0), 0, uring.NetPollFirst), 3)
	if string(buf[:3]) != "abc" {
		t.Errorf("received %q", buf[:3])
	}
	// The data fills the whole buffer, in two parts.
	push(t, r).Recv(on(b), buf, unix.MSG_WAITALL).SetUserData(1)
	sockWrite(t, a, "01234")
	wantQuiet(t, r)
	sockWrite(t, a, "567")
	wantRes(t, await(t, r, 1), 8)
	if string(buf) != "01234567" {
		t.Errorf("received %q", buf)
	}
	wantErrno(t, recv(on(b), unix.MSG_DONTWAIT, 0), unix.EAGAIN)
	a.Close()
	wantRes(t, recv(on(b), 0, 0), 0)
	rd, _ := osPipe(t)
	wantErrno(t, recv(fdOf(rd), 0, 0), unix.ENOTSOCK)
}

func recvNonEmpty(t *testing.T, r *uring.Ring) {
	a, b := tcpPair(t)
	sockWrite(t, a, "abcdef")
	buf := make([]byte, 4)
	keep(t, buf)
	for _, want := range []struct {
		data string
		more bool
	}{{"abcd", true}, {"ef", false}} {
		c := ringtest.Do(t, r, func(e *uring.SQE) { e.Recv(on(b), buf, 0) })
		wantRes(t, c, len(want.data))
		if string(buf[:c.Res]) != want.data || c.Has(uring.CQESockNonEmpty) != want.more {
			t.Errorf("received %q with %+v, want %+v", buf[:c.Res], c, want)
		}
	}
}

func recvSelect(t *testing.T, r *uring.Ring) {
	a, b := unixPair(t, unix.SOCK_STREAM)
	group := bufRing(t, r, 3, 2, 8)
	registerFiles(t, r, b.Int())
	recv := func(fd uring.FD, n int) uring.CQE {
		return ringtest.Do(t, r, func(e *uring.SQE) { e.RecvSelect(fd, n, 0, 3) })
	}
	sockWrite(t, a, "0123456789abcdef")
	for _, want := range []struct {
		n    int
		data string
	}{{0, "01234567"}, {3, "89a"}, {100, "bcdef"}} {
		if got := take(t, group, recv(uring.FixedFd(0), want.n)); string(got) != want.data {
			t.Fatalf("received %q, want %q", got, want.data)
		}
	}
	sockWrite(t, a, "ab")
	held := []uring.CQE{recv(on(b), 1), recv(on(b), 1)}
	sockWrite(t, a, "c")
	wantErrno(t, recv(on(b), 0), unix.ENOBUFS)
	take(t, group, held[0])
	if got := take(t, group, recv(on(b), 0)); string(got) != "c" {
		t.Errorf("received %q after ENOBUFS", got)
	}
	wantErrno(t, ringtest.Do(t, r, func(e *uring.SQE) { e.RecvSelect(on(b), 0, 0, 99) }), unix.ENOBUFS)
}

func recvMultishot(t *testing.T, r *uring.Ring) {
	a, b := tcpPair(t)
	group := bufRing(t, r, 3, 4, 16)
	registerFiles(t, r, b.Int())
	push(t, r).RecvMultishot(uring.FixedFd(0), 0, 3).SetUserData(1)
	wantQuiet(t, r)
	for _, s := range []string{"a", "bcd", "0123456789abcdef", "e", "f", "g"} {
		sockWrite(t, a, s)
		c := await(t, r, 1)
		wantMore(t, c, true)
		if got := take(t, group, c); string(got) != s {
			t.Fatalf("received %q, want %q", got, s)
		}
	}
	a.Close()
	c := await(t, r, 1)
	wantRes(t, c, 0)
	wantMore(t, c, false)
	refuse := func(build func(e *uring.SQE)) {
		t.Helper()
		c := ringtest.Do(t, r, build)
		wantErrno(t, c, unix.EINVAL)
		wantMore(t, c, false)
	}
	refuse(func(e *uring.SQE) { e.RecvMultishot(on(b), unix.MSG_WAITALL, 3) })
	refuse(func(e *uring.SQE) { e.RecvMultishot(on(b), 0, 3).Raw().Flags = 0 }) // no buffer group
}

// recvMultishotOverflow sends more messages than the smallest CQ has slots or the group has
// buffers before it reaps.
func recvMultishotOverflow(t *testing.T, r *uring.Ring) {
	a, b := unixPair(t, unix.SOCK_SEQPACKET)
	group := bufRing(t, r, 3, 8, 16)
	arm := func(e *uring.SQE) { e.RecvMultishot(on(b), 0, 3).SetUserData(1) }
	arm(push(t, r))
	runTaskWork(t, r)
	var want []byte
	for i := range 20 {
		s := string(rune('a'+i)) + "123"
		sockWrite(t, a, s)
		want = append(want, s...)
		runTaskWork(t, r)
	}
	collect(t, r, group, want, arm)
	cancelAll(t, r, 1)
}

// recvMultishotCancel cancels a multishot receive that has delivered data, by user data and
// by descriptor.
func recvMultishotCancel(t *testing.T, r *uring.Ring) {
	a, b := tcpPair(t)
	group := bufRing(t, r, 3, 4, 16)
	for _, cancel := range []func(e *uring.SQE){
		func(e *uring.SQE) { e.Cancel(1) },
		func(e *uring.SQE) { e.CancelWith(uring.CancelOptions{ByFD: true, FD: on(b)}) },
	} {
		push(t, r).RecvMultishot(on(b), 0, 3).SetUserData(1)
		sockWrite(t, a, "data")
		take(t, group, await(t, r, 1))
		wantQuiet(t, r)
		e := push(t, r)
		cancel(e)
		e.SetUserData(2)
		m := byUserData(t, r, 2)
		wantRes(t, m[2], 0)
		wantErrno(t, m[1], unix.ECANCELED)
		wantMore(t, m[1], false)
		sockWrite(t, a, "kept")
		wantQuiet(t, r)
		wantRead(t, b, "kept")
	}
}

func recvBundle(t *testing.T, r *uring.Ring) {
	a, b := tcpPair(t)
	group := bufRing(t, r, 3, 8, 16)
	data := pattern(100)
	for name, build := range map[string]func(e *uring.SQE){
		"one-shot":  func(e *uring.SQE) { e.RecvBundle(on(b), 0, 0, 3) },
		"multishot": func(e *uring.SQE) { e.RecvMultishot(on(b), 0, 3).SetNetFlags(uring.NetBundle) },
	} {
		sockWrite(t, a, string(data))
		build(push(t, r).SetUserData(0))
		var got []byte
		completions, more := 0, false
		for len(got) < len(data) {
			c := await(t, r, 0)
			if c.Res <= 0 {
				t.Fatalf("%s: completion %+v (%v) after %d bytes", name, c, c.Err(), len(got))
			}
			completions++
			got = append(got, takeBundle(t, group, c)...)
			if more = c.Has(uring.CQEMore); !more && len(got) < len(data) {
				build(push(t, r).SetUserData(0))
			}
		}
		if !bytes.Equal(got, data) {
			t.Fatalf("%s: received %x, want %x", name, got, data)
		}
		if completions > 4 { // 7 buffers
			t.Errorf("%s: %d completions for %d bytes", name, completions, len(data))
		}
		if more {
			cancelAll(t, r, 0)
		}
	}
}

// takeBundle returns a copy of the data of a bundle and recycles the buffers.
func takeBundle(t testing.TB, group *uring.BufRing, c uring.CQE) []byte {
	t.Helper()
	var data []byte
	var ids []uint16
	group.TakeBundle(c, func(id uint16, p []byte, done bool) {
		if !done {
			t.Errorf("buffer %d is not done", id)
		}
		data, ids = append(data, p...), append(ids, id)
	})
	for _, id := range ids {
		group.Recycle(id)
	}
	group.Publish()
	if len(data) != int(c.Res) {
		t.Fatalf("%d bytes in the buffers of %+v", len(data), c)
	}
	return data
}

func recvMultishotLimit(t *testing.T, r *uring.Ring) {
	for _, limit := range []struct{ each, total, max, want int }{
		{0, 0, 16, 50},  // no limits
		{8, 0, 8, 50},   // small pieces
		{8, 20, 8, 24},  // ends with the piece that reaches 20
		{0, 20, 16, 32}, // likewise
	} {
		a, b := tcpPair(t)
		group := bufRing(t, r, 3, 8, 16)
		data := pattern(50)
		sockWrite(t, a, string(data))
		push(t, r).RecvMultishotLimit(on(b), limit.each, limit.total, 0, 3).SetUserData(1)
		var got []byte
		more := true
		for more && len(got) < limit.want {
			c := await(t, r, 1)
			if int(c.Res) > limit.max {
				t.Fatalf("%+v: a piece of %d bytes", limit, c.Res)
			}
			got = append(got, take(t, group, c)...)
			if more = c.Has(uring.CQEMore); !more && len(got) < limit.want && r.CQEntries() < 10 {
				// A full CQ ended it; the kernel does not keep the count.
				push(t, r).RecvMultishotLimit(on(b), limit.each, max(limit.total-len(got), 0), 0, 3).SetUserData(1)
				more = true
			}
		}
		if !bytes.Equal(got, data[:limit.want]) || more != (limit.total == 0) {
			t.Errorf("%+v: received %d bytes, CQEMore %v", limit, len(got), more)
		}
		if more {
			cancelAll(t, r, 1)
		}
		if err := group.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func kernelRecvMsg(t *testing.T) {
	t.Run("datagram", func(t *testing.T) { ringtest.OverFlavours(t, recvMsgDatagram) })
	t.Run("unix", func(t *testing.T) { ringtest.OverFlavours(t, recvMsgUnix) })
	t.Run("select", func(t *testing.T) { ringtest.OverFlavours(t, recvMsgSelect) })
	t.Run("multishot", func(t *testing.T) { ringtest.OverFlavours(t, recvMsgMultishot) })
	t.Run("multishot overflow", func(t *testing.T) { ringtest.OverFlavours(t, recvMsgMultishotOverflow) })
}

// sendDatagram sends from one bound socket to another.
func sendDatagram(t testing.TB, from, to *sys.FD, s string) {
	t.Helper()
	addr := localAddr(t, to)
	sa := &unix.SockaddrInet4{Port: int(addr.Port()), Addr: addr.Addr().As4()}
	if err := unix.Sendto(from.Int(), []byte(s), 0, sa); err != nil {
		t.Fatal(err)
	}
}

// packetInfo makes a socket receive control data, and wantPacketInfo checks it.
func packetInfo(t testing.TB, fd *sys.FD) {
	t.Helper()
	if err := unix.SetsockoptInt(fd.Int(), unix.IPPROTO_IP, unix.IP_PKTINFO, 1); err != nil {
		t.Fatal(err)
	}
}

func wantPacketInfo(t testing.TB, control []byte) {
	t.Helper()
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil || len(messages) != 1 || messages[0].Header.Type != unix.IP_PKTINFO {
		t.Fatalf("control data %+v, %v", messages, err)
	}
	if addr := messages[0].Data[8:12]; string(addr) != "\x7f\x00\x00\x01" {
		t.Errorf("packet for %v", addr)
	}
}

func recvMsgDatagram(t *testing.T, r *uring.Ring) {
	a, b := boundSocket(t, unix.SOCK_DGRAM), boundSocket(t, unix.SOCK_DGRAM)
	packetInfo(t, b)
	registerFiles(t, r, b.Int())
	m, peer := new(uring.Msg), new(uring.Sockaddr)
	one, two, control := make([]byte, 3), make([]byte, 4), make([]byte, 64)
	iov := []uring.Iovec{uring.NewIovec(one), uring.NewIovec(two)}
	keep(t, m, peer, iov, control)
	for _, want := range []struct {
		data  string
		fd    uring.FD
		flags int
	}{{"abcdefg", on(b), 0}, {"abcdefgh", uring.FixedFd(0), unix.MSG_TRUNC}} {
		peer.Reset()
		m.Set(peer, iov, control)
		push(t, r).RecvMsg(want.fd, m, 0).SetNetFlags(uring.NetPollFirst).SetUserData(1)
		wantQuiet(t, r)
		sendDatagram(t, a, b, want.data)
		wantRes(t, await(t, r, 1), 7)
		if string(one) != "abc" || string(two) != "defg" || m.Flags() != want.flags {
			t.Errorf("received %q, %q, flags %#x", one, two, m.Flags())
		}
		if m.AddrLen() != 16 || m.Addr() != peer || peer.Len() != 16 || peer.AddrPort() != localAddr(t, a) {
			t.Errorf("from %v in %d bytes, want %v", peer.AddrPort(), m.AddrLen(), localAddr(t, a))
		}
		wantPacketInfo(t, control[:m.ControlLen()])
	}
	rd, _ := osPipe(t)
	wantErrno(t, ringtest.Do(t, r, func(e *uring.SQE) { e.RecvMsg(fdOf(rd), m, 0) }), unix.ENOTSOCK)
}

// recvMsgUnix receives an address whose end is known only from its length.
func recvMsgUnix(t *testing.T, r *uring.Ring) {
	a, aName := abstractSocket(t, unix.SOCK_DGRAM)
	b, bName := abstractSocket(t, unix.SOCK_DGRAM)
	m, peer, buf := new(uring.Msg), new(uring.Sockaddr), make([]byte, 8)
	peer.Reset()
	m.Set(peer, []uring.Iovec{uring.NewIovec(buf)}, nil)
	keep(t, m)
	push(t, r).RecvMsg(on(b), m, 0).SetUserData(1)
	if err := unix.Sendto(a.Int(), []byte("hello"), 0, &unix.SockaddrUnix{Name: bName}); err != nil {
		t.Fatal(err)
	}
	wantRes(t, await(t, r, 1), 5)
	if string(buf[:5]) != "hello" || m.Addr().UnixPath() != aName {
		t.Errorf("received %q from %q, want %q", buf[:5], m.Addr().UnixPath(), aName)
	}
}

func recvMsgSelect(t *testing.T, r *uring.Ring) {
	a, b := boundSocket(t, unix.SOCK_DGRAM), boundSocket(t, unix.SOCK_DGRAM)
	group := bufRing(t, r, 3, 2, 16)
	m, peer := new(uring.Msg), new(uring.Sockaddr)
	peer.Reset()
	m.Set(peer, nil, nil)
	keep(t, m)
	push(t, r).RecvMsg(on(b), m, 0).SetBufferGroup(3).SetUserData(1)
	sendDatagram(t, a, b, "hello")
	if got := take(t, group, await(t, r, 1)); string(got) != "hello" || m.Addr().AddrPort() != localAddr(t, a) {
		t.Errorf("received %q from %v", got, m.Addr().AddrPort())
	}
}

// armMultishotMsg prepares a socket to receive messages with addresses and control data.
// arm arms the receive, or arms it again.
func armMultishotMsg(t *testing.T, r *uring.Ring, fd uring.FD) (m *uring.Msg, arm func(e *uring.SQE)) {
	m = new(uring.Msg)
	peer := new(uring.Sockaddr)
	peer.Reset()
	m.Set(peer, nil, make([]byte, 64))
	keep(t, m)
	return m, func(e *uring.SQE) { e.RecvMsgMultishot(fd, m, 0, 3).SetUserData(1) }
}

const multishotRoom = 16 + 128 + 64 // header, address, control data

func recvMsgMultishot(t *testing.T, r *uring.Ring) {
	a, b := boundSocket(t, unix.SOCK_DGRAM), boundSocket(t, unix.SOCK_DGRAM)
	packetInfo(t, b)
	group := bufRing(t, r, 3, 4, multishotRoom+8)
	registerFiles(t, r, b.Int())
	m, arm := armMultishotMsg(t, r, uring.FixedFd(0))
	arm(push(t, r))
	wantQuiet(t, r)
	for _, s := range []string{"hello", "12345678", "1234567890", "x", "y", ""} {
		sendDatagram(t, a, b, s)
		c := await(t, r, 1)
		wantMore(t, c, s != "") // documented: an empty datagram ends it
		msg, ok := uring.ParseMultishotMsg(take(t, group, c), m)
		if !ok {
			t.Fatalf("completion %+v (%v) does not parse", c, c.Err())
		}
		truncated := len(s) > 8
		if string(msg.Payload) != s[:min(8, len(s))] || (msg.Flags == unix.MSG_TRUNC) != truncated {
			t.Errorf("received %+v, want %q", msg, s)
		}
		if from := msg.Sockaddr(); len(msg.Name) != 16 || from.AddrPort() != localAddr(t, a) {
			t.Errorf("from %v, want %v", from.AddrPort(), localAddr(t, a))
		}
		wantPacketInfo(t, msg.Control)
	}
	bufRing(t, r, 4, 1, multishotRoom-1)
	c := ringtest.Do(t, r, func(e *uring.SQE) {
		sendDatagram(t, a, b, "no room")
		e.RecvMsgMultishot(on(b), m, 0, 4)
	})
	wantErrno(t, c, unix.EFAULT)
}

func recvMsgMultishotOverflow(t *testing.T, r *uring.Ring) {
	a, b := boundSocket(t, unix.SOCK_DGRAM), boundSocket(t, unix.SOCK_DGRAM)
	group := bufRing(t, r, 3, 4, 256)
	m, arm := armMultishotMsg(t, r, on(b))
	arm(push(t, r))
	runTaskWork(t, r)
	const n = 15
	for i := range n {
		sendDatagram(t, a, b, string(rune('a'+i)))
		runTaskWork(t, r)
	}
	for i := 0; i < n; {
		c := await(t, r, 1)
		if c.Errno() != unix.ENOBUFS {
			msg, ok := uring.ParseMultishotMsg(take(t, group, c), m)
			if want := string(rune('a' + i)); !ok || string(msg.Payload) != want {
				t.Fatalf("received %q, want %q", msg.Payload, want)
			}
			i++
		}
		if !c.Has(uring.CQEMore) {
			arm(push(t, r))
		}
	}
	cancelAll(t, r, 1)
}

func kernelRecvZC(t *testing.T) {
	ringtest.NeedOp(t, uring.OpRecvZC, "6.15")
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread) // after the ring is closed
	r := ringtest.Open(t, &uring.Options{Entries: 4, DeferTaskrun: true, CQE32: true})
	_, b := tcpPair(t)
	c := ringtest.Do(t, r, func(e *uring.SQE) { e.RecvZC(on(b), 0, 0) })
	wantErrno(t, c, unix.EINVAL) // no such queue
}
