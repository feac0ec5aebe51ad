// SPDX-License-Identifier: MIT

package uring_test

import (
	"bytes"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

func init() {
	kernelOp(uring.OpSend, kernelSend)
	kernelOp(uring.OpSendMsg, func(t *testing.T) { ringtest.OverFlavours(t, kernelSendMsg) })
	kernelOp(uring.OpSendZC, kernelSendZC)
	kernelOp(uring.OpSendMsgZC, kernelSendMsgZC)
}

func kernelSend(t *testing.T) {
	t.Run("stream", func(t *testing.T) { ringtest.OverFlavours(t, sendStream) })
	t.Run("whole", func(t *testing.T) { ringtest.OverFlavours(t, sendWhole) })
	t.Run("to", func(t *testing.T) {
		ringtest.NeedKernel(t, "an address in IORING_OP_SEND", "6.1")
		ringtest.OverFlavours(t, sendTo)
	})
	t.Run("group", func(t *testing.T) {
		ringtest.NeedKernel(t, "provided buffers in IORING_OP_SEND", "6.10")
		ringtest.OverFlavours(t, sendGroup)
	})
	t.Run("bundle", func(t *testing.T) {
		ringtest.NeedKernel(t, "IORING_RECVSEND_BUNDLE", "6.10")
		ringtest.OverFlavours(t, sendBundle)
	})
	t.Run("vector", func(t *testing.T) {
		ringtest.NeedKernel(t, "IORING_SEND_VECTORIZED", "6.17")
		ringtest.OverFlavours(t, sendVec)
	})
}

func sendStream(t *testing.T, r *uring.Ring) {
	a, b := unixPair(t, unix.SOCK_STREAM)
	registerFiles(t, r, a.Int())
	send := func(fd uring.FD, flags uring.NetFlags) uring.CQE {
		return ringtest.Do(t, r, func(e *uring.SQE) { e.Send(fd, goldenText, 0).SetNetFlags(flags) })
	}
	wantRes(t, send(on(a), 0), len(goldenText))
	wantRead(t, b, string(goldenText))
	wantRes(t, send(uring.FixedFd(0), uring.NetPollFirst), len(goldenText))
	wantRead(t, b, string(goldenText))
	b.Close()
	wantErrno(t, send(on(a), 0), unix.EPIPE) // and sends no signal
	_, wr := osPipe(t)
	wantErrno(t, send(fdOf(wr), 0), unix.ENOTSOCK)
}

// sendWhole sends more than a socket buffer holds: with MSG_WAITALL one completion covers
// all of it.
func sendWhole(t *testing.T, r *uring.Ring) {
	a, b := tcpPair(t)
	data := pattern(4 << 20)
	keep(t, data)
	got := drain(t, b)
	push(t, r).Send(on(a), data, unix.MSG_WAITALL).SetUserData(1)
	wantRes(t, await(t, r, 1), len(data))
	a.Close()
	if !bytes.Equal(<-got, data) {
		t.Error("the received data differs from the sent data")
	}
}

// pattern returns n bytes with a long period.
func pattern(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i ^ i>>8 ^ i>>16)
	}
	return p
}

// drain reads a socket to its end on another goroutine.
func drain(t testing.TB, fd *sys.FD) <-chan []byte {
	t.Helper()
	dup, err := unix.FcntlInt(uintptr(fd.Int()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(dup), "socket")
	got := make(chan []byte, 1)
	go func() {
		data, _ := io.ReadAll(f)
		f.Close()
		got <- data
	}()
	return got
}

func sendTo(t *testing.T, r *uring.Ring) {
	a, b := boundSocket(t, unix.SOCK_DGRAM), boundSocket(t, unix.SOCK_DGRAM)
	to := sockaddrOf(t, b)
	wantRes(t, ringtest.Do(t, r, func(e *uring.SQE) { e.Send(on(a), goldenText, 0).SetAddr(to) }), len(goldenText))
	wantFrom(t, b, a, string(goldenText))
	nowhere := mustSockaddr("[::1]:9")
	keep(t, nowhere)
	c := ringtest.Do(t, r, func(e *uring.SQE) { e.Send(on(a), goldenText, 0).SetAddr(nowhere) })
	wantErrno(t, c, unix.EAFNOSUPPORT)
}

// wantFrom reads a datagram and compares its content and sender.
func wantFrom(t testing.TB, fd, sender *sys.FD, want string) {
	t.Helper()
	buf := make([]byte, len(want)+1)
	n, from, err := unix.Recvfrom(fd.Int(), buf, 0)
	if err != nil || string(buf[:n]) != want {
		t.Fatalf("received %q, %v, want %q", buf[:max(n, 0)], err, want)
	}
	if in := from.(*unix.SockaddrInet4); uint16(in.Port) != localAddr(t, sender).Port() {
		t.Errorf("from port %d, want that of %v", in.Port, localAddr(t, sender))
	}
}

// filled returns a group whose buffers hold the parts of data.
func filled(t testing.TB, r *uring.Ring, n int, data []byte) *uring.BufRing {
	t.Helper()
	b := bufRing(t, r, 3, n, len(data)/n)
	for id := range n {
		copy(b.Buffer(uint16(id)), data[id*len(data)/n:])
	}
	return b
}

func sendGroup(t *testing.T, r *uring.Ring) {
	a, b := unixPair(t, unix.SOCK_STREAM)
	data := pattern(32)
	filled(t, r, 2, data)
	send := func() uring.CQE {
		return ringtest.Do(t, r, func(e *uring.SQE) { e.Send(on(a), nil, 0).SetBufferGroup(3) })
	}
	for id := range 2 {
		c := send()
		wantRes(t, c, 16)
		if !c.Has(uring.CQEBuffer) || int(c.BufferID()) != id {
			t.Errorf("completion %+v, want buffer %d", c, id)
		}
		wantRead(t, b, string(data[id*16:id*16+16]))
	}
	wantErrno(t, send(), unix.ENOBUFS)
}

// sendBundle sends a whole group, in as many pieces as the kernel chooses. Each completion
// names the first of the buffers that it covers.
func sendBundle(t *testing.T, r *uring.Ring) {
	a, b := unixPair(t, unix.SOCK_STREAM)
	data := pattern(64)
	group := filled(t, r, 4, data)
	wantBundle(t, r, group, data, func(e *uring.SQE) { e.SendBundle(on(a), 0, 3) })
	wantRead(t, b, string(data))

	for id := range 4 {
		group.Recycle(uint16(id))
	}
	group.Publish()
	// Documented: a length does not limit the whole bundle.
	wantBundle(t, r, group, data, func(e *uring.SQE) { e.SendBundle(on(a), 0, 3).Raw().Len = 32 })
	wantRead(t, b, string(data))

	c := ringtest.Do(t, r, func(e *uring.SQE) { e.SendBundle(on(a), 0, 3) })
	wantErrno(t, c, unix.ENOBUFS)
}

// wantBundle runs an entry that uses a bundle of buffers and compares the content of the
// buffers of its completions.
func wantBundle(t *testing.T, r *uring.Ring, group *uring.BufRing, want []byte, build func(e *uring.SQE)) {
	t.Helper()
	build(push(t, r))
	var got []byte
	for more := true; more; {
		c := ringtest.Await(t, r, 1)[0]
		more = c.Has(uring.CQEMore)
		if c.Res <= 0 {
			t.Fatalf("completion %+v (%v) after %d of %d bytes", c, c.Err(), len(got), len(want))
		}
		group.TakeBundle(c, func(id uint16, data []byte, done bool) {
			got = append(got, data...)
		})
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("the bundle holds %x, want %x", got, want)
	}
}

func sendVec(t *testing.T, r *uring.Ring) {
	a, b := unixPair(t, unix.SOCK_STREAM)
	iov := []uring.Iovec{uring.NewIovec([]byte("one,")), uring.NewIovec(nil), uring.NewIovec([]byte("two"))}
	keep(t, iov)
	wantRes(t, ringtest.Do(t, r, func(e *uring.SQE) { e.SendVec(on(a), iov, 0) }), 7)
	wantRead(t, b, "one,two")
	many := make([]uring.Iovec, 2000)
	keep(t, many)
	wantErrno(t, ringtest.Do(t, r, func(e *uring.SQE) { e.SendVec(on(a), many, 0) }), unix.EINVAL)
}

func kernelSendMsg(t *testing.T, r *uring.Ring) {
	a, b := boundSocket(t, unix.SOCK_DGRAM), boundSocket(t, unix.SOCK_DGRAM)
	m := new(uring.Msg)
	iov := []uring.Iovec{uring.NewIovec([]byte("one,")), uring.NewIovec([]byte("two"))}
	m.Set(sockaddrOf(t, b), iov, nil)
	keep(t, m)
	registerFiles(t, r, a.Int())
	for _, fd := range []uring.FD{on(a), uring.FixedFd(0)} {
		wantRes(t, ringtest.Do(t, r, func(e *uring.SQE) { e.SendMsg(fd, m, 0).SetNetFlags(uring.NetPollFirst) }), 7)
		wantFrom(t, b, a, "one,two")
	}
	m.Set(nil, iov, nil)
	wantErrno(t, ringtest.Do(t, r, func(e *uring.SQE) { e.SendMsg(on(a), m, 0) }), unix.EDESTADDRREQ)

	// The message also passes a descriptor.
	rd, wr := osPipe(t)
	x, y := unixPair(t, unix.SOCK_STREAM)
	m.Set(nil, iov, unix.UnixRights(int(rd.Fd())))
	wantRes(t, ringtest.Do(t, r, func(e *uring.SQE) { e.SendMsg(on(x), m, 0) }), 7)
	buf, control := make([]byte, 8), make([]byte, 64)
	_, n, _, _, err := unix.Recvmsg(y.Int(), buf, control, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	got := own(t, rightsOf(t, control[:n]))
	write(t, wr, "through")
	wantRead(t, got, "through")
}

// rightsOf returns the descriptor in control data.
func rightsOf(t testing.TB, control []byte) int {
	t.Helper()
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil || len(messages) != 1 {
		t.Fatalf("control messages %+v, %v", messages, err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		t.Fatalf("descriptors %v, %v", fds, err)
	}
	return fds[0]
}

func kernelSendZC(t *testing.T) {
	ringtest.NeedOp(t, uring.OpSendZC, "6.0")
	t.Run("stream", func(t *testing.T) { ringtest.OverFlavours(t, sendZCStream) })
	t.Run("to", func(t *testing.T) { ringtest.OverFlavours(t, sendZCTo) })
	t.Run("report", func(t *testing.T) {
		ringtest.NeedKernel(t, "IORING_SEND_ZC_REPORT_USAGE", "6.2")
		ringtest.OverFlavours(t, sendZCReport)
	})
}

// zeroCopy runs a zero-copy send and returns its result and that of its notification, if
// any. The caller must have served the receivers before.
func zeroCopy(t testing.TB, r *uring.Ring, build func(e *uring.SQE)) (sent uring.CQE, notified func() *uring.CQE) {
	t.Helper()
	build(push(t, r).SetUserData(0))
	sent = ringtest.Await(t, r, 1)[0]
	if sent.Has(uring.CQENotif) {
		t.Fatalf("the notification came before the result: %+v", sent)
	}
	return sent, func() *uring.CQE {
		t.Helper()
		if !sent.Has(uring.CQEMore) {
			return nil
		}
		n := ringtest.Await(t, r, 1)[0]
		if !n.Has(uring.CQENotif) || n.Has(uring.CQEMore) || n.UserData != sent.UserData {
			t.Fatalf("notification %+v after %+v", n, sent)
		}
		return &n
	}
}

// wantNotified checks that the notification arrives and its result.
func wantNotified(t testing.TB, n *uring.CQE, res int32) {
	t.Helper()
	if n == nil || n.Res != res {
		t.Fatalf("notification %+v, want result %d", n, res)
	}
}

func sendZCStream(t *testing.T, r *uring.Ring) {
	a, b := tcpPair(t)
	data := pattern(32 << 10)
	fixed := registerBuffer(t, r, len(data))
	copy(fixed, data)
	registerFiles(t, r, a.Int())
	keep(t, data)
	for name, build := range map[string]func(e *uring.SQE){
		"plain":      func(e *uring.SQE) { e.SendZC(on(a), data, unix.MSG_WAITALL, 0) },
		"poll first": func(e *uring.SQE) { e.SendZC(uring.FixedFd(0), data, unix.MSG_WAITALL, uring.NetPollFirst) },
		"registered": func(e *uring.SQE) { e.SendZC(on(a), fixed, unix.MSG_WAITALL, 0).SetFixedBuffer(0) },
	} {
		sent, notified := zeroCopy(t, r, build)
		if int(sent.Res) != len(data) || !sent.Has(uring.CQEMore) {
			t.Fatalf("%s: completion %+v (%v)", name, sent, sent.Err())
		}
		wantData(t, b, data)
		wantNotified(t, notified(), 0)
	}
	sent, notified := zeroCopy(t, r, func(e *uring.SQE) { e.SendZC(on(a), data, 0, 0).SetFixedBuffer(0) })
	wantErrno(t, sent, unix.EFAULT) // outside of the registered buffer
	notified()

	u, _ := unixPair(t, unix.SOCK_STREAM)
	sent, notified = zeroCopy(t, r, func(e *uring.SQE) { e.SendZC(on(u), data, 0, 0) })
	wantErrno(t, sent, unix.EOPNOTSUPP)
	notified()
	sent, notified = zeroCopy(t, r, func(e *uring.SQE) { e.SendZC(on(a), data, 0, 0).SetFlags(uring.SQESkipSuccess) })
	wantErrno(t, sent, unix.EINVAL)
	notified()
}

// wantData reads len(want) bytes and compares them.
func wantData(t testing.TB, fd *sys.FD, want []byte) {
	t.Helper()
	got := make([]byte, len(want))
	for n := 0; n < len(got); {
		k, err := unix.Read(fd.Int(), got[n:])
		if k <= 0 {
			t.Fatalf("read %d, %v after %d of %d bytes", k, err, n, len(want))
		}
		n += k
	}
	if !bytes.Equal(got, want) {
		t.Fatal("the data differs")
	}
}

func sendZCTo(t *testing.T, r *uring.Ring) {
	a, b := boundSocket(t, unix.SOCK_DGRAM), boundSocket(t, unix.SOCK_DGRAM)
	to := sockaddrOf(t, b)
	data := bytes.Repeat([]byte("datagram"), 100)
	keep(t, data)
	sent, notified := zeroCopy(t, r, func(e *uring.SQE) { e.SendZC(on(a), data, 0, 0).SetAddr(to) })
	wantRes(t, sent, len(data))
	wantFrom(t, b, a, string(data))
	wantNotified(t, notified(), 0)
	ctlOK(t, "register", r.RegisterBuffers([][]byte{data}))
	part := data[8:24]
	sent, notified = zeroCopy(t, r, func(e *uring.SQE) { e.SendZC(on(a), part, 0, 0).SetFixedBuffer(0).SetAddr(to) })
	wantRes(t, sent, len(part))
	wantFrom(t, b, a, string(part))
	wantNotified(t, notified(), 0)
	sent, _ = zeroCopy(t, r, func(e *uring.SQE) { e.SendZC(on(a), make([]byte, 8), 0, 0).SetFixedBuffer(0).SetAddr(to) })
	if sent.Res >= 0 {
		t.Errorf("memory that is not registered was sent: %+v", sent)
	}
}

// sendZCReport asks whether data was copied. The loopback interface always copies.
func sendZCReport(t *testing.T, r *uring.Ring) {
	a, b := tcpPair(t)
	data := pattern(32 << 10)
	keep(t, data)
	const copied = -1 << 31
	sent, notified := zeroCopy(t, r, func(e *uring.SQE) { e.SendZC(on(a), data, unix.MSG_WAITALL, uring.NetReportZC) })
	wantRes(t, sent, len(data))
	wantData(t, b, data)
	wantNotified(t, notified(), copied)
}

func kernelSendMsgZC(t *testing.T) {
	ringtest.NeedOp(t, uring.OpSendMsgZC, "6.1")
	t.Run("datagram", func(t *testing.T) { ringtest.OverFlavours(t, sendMsgZC) })
	t.Run("registered", func(t *testing.T) {
		ringtest.NeedKernel(t, "IORING_RECVSEND_FIXED_BUF in IORING_OP_SENDMSG_ZC", "6.15")
		ringtest.OverFlavours(t, sendMsgZCFixed)
	})
}

func sendMsgZC(t *testing.T, r *uring.Ring) {
	a, b := boundSocket(t, unix.SOCK_DGRAM), boundSocket(t, unix.SOCK_DGRAM)
	m := new(uring.Msg)
	iov := []uring.Iovec{uring.NewIovec(pattern(1000)), uring.NewIovec(pattern(2000))}
	want := append(pattern(1000), pattern(2000)...)
	m.Set(sockaddrOf(t, b), iov, nil)
	keep(t, m)
	sent, notified := zeroCopy(t, r, func(e *uring.SQE) { e.SendMsgZC(on(a), m, 0, 0) })
	wantRes(t, sent, len(want))
	wantFrom(t, b, a, string(want))
	wantNotified(t, notified(), 0)
	m.Set(nil, iov, nil)
	sent, notified = zeroCopy(t, r, func(e *uring.SQE) { e.SendMsgZC(on(a), m, 0, 0) })
	wantErrno(t, sent, unix.EDESTADDRREQ)
	notified()
}

func sendMsgZCFixed(t *testing.T, r *uring.Ring) {
	a, b := tcpPair(t)
	fixed := registerBuffer(t, r, 8192)
	copy(fixed, pattern(len(fixed)))
	m := new(uring.Msg)
	m.Set(nil, []uring.Iovec{uring.NewIovec(fixed[5000:]), uring.NewIovec(fixed[:3000])}, nil)
	keep(t, m)
	sent, notified := zeroCopy(t, r, func(e *uring.SQE) { e.SendMsgZC(on(a), m, unix.MSG_WAITALL, 0).SetFixedBuffer(0) })
	wantRes(t, sent, 8192-5000+3000)
	wantData(t, b, append(bytes.Clone(fixed[5000:]), fixed[:3000]...))
	wantNotified(t, notified(), 0)
	sent, notified = zeroCopy(t, r, func(e *uring.SQE) { e.SendMsgZC(on(a), m, 0, 0).SetFixedBuffer(1) })
	wantErrno(t, sent, unix.EFAULT) // no such buffer
	notified()
}
