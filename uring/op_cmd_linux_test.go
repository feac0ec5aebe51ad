// SPDX-License-Identifier: MIT

package uring_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

func init() { kernelOp(uring.OpUringCmd, kernelUringCmd) }

func kernelUringCmd(t *testing.T) {
	ringtest.NeedOp(t, uring.OpUringCmd, "5.19")
	t.Run("refused", func(t *testing.T) { ringtest.OverFlavours(t, cmdRefused) })
	t.Run("queues", func(t *testing.T) {
		ringtest.NeedKernel(t, "SOCKET_URING_OP_SIOCINQ", "6.5")
		ringtest.OverFlavours(t, socketQueues)
	})
	t.Run("options", func(t *testing.T) {
		ringtest.NeedKernel(t, "SOCKET_URING_OP_GETSOCKOPT", "6.7")
		ringtest.OverFlavours(t, socketOptions)
	})
	t.Run("data", func(t *testing.T) {
		ringtest.NeedKernel(t, "SOCKET_URING_OP_SETSOCKOPT", "6.7")
		ringtest.OverFlavours(t, cmdData)
		t.Run("sqe128", cmdBigData)
	})
	t.Run("timestamps", func(t *testing.T) {
		ringtest.NeedKernel(t, "SOCKET_URING_OP_TX_TIMESTAMP", "6.17")
		t.Run("cqe32", func(t *testing.T) { socketTimestamps(t, &uring.Options{CQE32: true}) })
		t.Run("mixed", func(t *testing.T) {
			ringtest.NeedKernel(t, "IORING_SETUP_CQE_MIXED", "6.18")
			socketTimestamps(t, &uring.Options{CQEMixed: true})
		})
		t.Run("cqe16", func(t *testing.T) {
			r := ringtest.Open(t, &uring.Options{})
			a := boundSocket(t, unix.SOCK_DGRAM)
			wantErrno(t, ringtest.Do(t, r, func(e *uring.SQE) { e.SocketTxTimestamps(on(a)) }), unix.EINVAL)
		})
	})
	t.Run("discard", func(t *testing.T) {
		ringtest.NeedKernel(t, "BLOCK_URING_CMD_DISCARD", "6.12")
		blockDiscard(t, ringtest.Open(t, &uring.Options{Entries: 4}))
	})
}

func cmdRefused(t *testing.T, r *uring.Ring) {
	f := tempFile(t, "text")
	wantErrno(t, ringtest.Do(t, r, func(e *uring.SQE) { e.UringCmd(fdOf(f), 0) }), unix.EOPNOTSUPP)
	wantErrno(t, ringtest.Do(t, r, func(e *uring.SQE) { e.UringCmd(uring.Fd(unusedFD), 0) }), unix.EBADF)
	a := boundSocket(t, unix.SOCK_DGRAM)
	wantErrno(t, ringtest.Do(t, r, func(e *uring.SQE) { e.UringCmd(on(a), 99) }), unix.EOPNOTSUPP)
}

func socketQueues(t *testing.T, r *uring.Ring) {
	a, b := tcpPair(t)
	registerFiles(t, r, b.Int())
	inq := func(fd uring.FD) uring.CQE {
		return ringtest.Do(t, r, func(e *uring.SQE) { e.SocketInq(fd) })
	}
	outq := func(fd uring.FD) uring.CQE {
		return ringtest.Do(t, r, func(e *uring.SQE) { e.SocketOutq(fd) })
	}
	wantRes(t, inq(on(b)), 0)
	sockWrite(t, a, "hello")
	wantRes(t, inq(uring.FixedFd(0)), 5)

	// Until the socket accepts no more.
	data := pattern(1 << 20)
	for {
		if _, err := unix.SendmsgN(a.Int(), data, nil, nil, unix.MSG_DONTWAIT); err == unix.EAGAIN {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if c := outq(on(a)); c.Res <= 0 {
		t.Errorf("full send queue: %+v (%v)", c, c.Err())
	}
	wantRes(t, outq(on(b)), 0)

	l := listener(t)
	wantErrno(t, inq(on(l)), unix.EINVAL)
	wantErrno(t, outq(on(l)), unix.EINVAL)
	u, _ := unixPair(t, unix.SOCK_STREAM)
	wantErrno(t, inq(on(u)), unix.EOPNOTSUPP)
}

func socketOptions(t *testing.T, r *uring.Ring) {
	a := boundSocket(t, unix.SOCK_STREAM)
	registerFiles(t, r, a.Int())
	val := make([]byte, 4)
	keep(t, val)
	get := func(level, name int, val []byte) uring.CQE {
		return ringtest.Do(t, r, func(e *uring.SQE) { e.GetSockOpt(on(a), level, name, val) })
	}
	set := func(level, name int, val []byte) uring.CQE {
		return ringtest.Do(t, r, func(e *uring.SQE) { e.SetSockOpt(uring.FixedFd(0), level, name, val) })
	}
	wantRes(t, get(unix.SOL_SOCKET, unix.SO_TYPE, val), 4)
	if got := binary.NativeEndian.Uint32(val); got != unix.SOCK_STREAM {
		t.Errorf("SO_TYPE is %d", got)
	}
	for _, o := range []struct{ level, name int }{
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE}, {unix.IPPROTO_TCP, unix.TCP_NODELAY},
	} {
		binary.NativeEndian.PutUint32(val, 1)
		wantRes(t, set(o.level, o.name, val), 0)
		if on, err := unix.GetsockoptInt(a.Int(), o.level, o.name); on == 0 || err != nil {
			t.Errorf("option %+v: %d, %v", o, on, err)
		}
	}
	wantErrno(t, get(unix.IPPROTO_TCP, unix.TCP_NODELAY, val), unix.EOPNOTSUPP)
	wantErrno(t, get(unix.SOL_SOCKET, 9999, val), unix.ENOPROTOOPT)
	wantErrno(t, set(unix.SOL_SOCKET, unix.SO_KEEPALIVE, val[:1]), unix.EINVAL)
	wantErrno(t, set(unix.SOL_SOCKET, 9999, val), unix.ENOPROTOOPT)
	u, _ := unixPair(t, unix.SOCK_STREAM)
	binary.NativeEndian.PutUint32(val, 1)
	c := ringtest.Do(t, r, func(e *uring.SQE) { e.SetSockOpt(on(u), unix.SOL_SOCKET, unix.SO_PASSCRED, val) })
	wantRes(t, c, 0)
}

// keepAliveCmd turns SO_KEEPALIVE on. The address of the value is passed as plain command
// data, where the kernel looks for it.
func keepAliveCmd(e *uring.SQE, fd *sys.FD) []byte {
	const setSockOpt = 3
	raw := e.UringCmd(on(fd), setSockOpt).Raw()
	raw.Addr, raw.FileIndex = uint64(unix.SO_KEEPALIVE)<<32|unix.SOL_SOCKET, 4
	return binary.NativeEndian.AppendUint64(nil, addressOf(&oneWord))
}

var oneWord uint32 = 1

func wantKeepAlive(t *testing.T, fd *sys.FD) {
	t.Helper()
	if on, err := unix.GetsockoptInt(fd.Int(), unix.SOL_SOCKET, unix.SO_KEEPALIVE); on == 0 || err != nil {
		t.Errorf("SO_KEEPALIVE is %d, %v", on, err)
	}
}

func cmdData(t *testing.T, r *uring.Ring) {
	a := boundSocket(t, unix.SOCK_STREAM)
	wantRes(t, ringtest.Do(t, r, func(e *uring.SQE) { e.SetCmd(keepAliveCmd(e, a)) }), 0)
	wantKeepAlive(t, a)
}

func cmdBigData(t *testing.T) {
	r := ringtest.Open(t, &uring.Options{SQE128: true})
	for range 3 {
		a := boundSocket(t, unix.SOCK_STREAM)
		big := r.BigSQE()
		copy(big.Cmd(), keepAliveCmd(big.SQE(), a))
		wantRes(t, ringtest.Await(t, r, 1)[0], 0)
		wantKeepAlive(t, a)
	}
}

// socketTimestamps asks when datagrams were sent. The loopback interface has software
// timestamps.
func socketTimestamps(t *testing.T, o *uring.Options) {
	r := ringtest.Open(t, o)
	a, b := boundSocket(t, unix.SOCK_DGRAM), boundSocket(t, unix.SOCK_DGRAM)
	const flags = unix.SOF_TIMESTAMPING_TX_SOFTWARE | unix.SOF_TIMESTAMPING_SOFTWARE |
		unix.SOF_TIMESTAMPING_OPT_ID | unix.SOF_TIMESTAMPING_OPT_TSONLY
	if err := unix.SetsockoptInt(a.Int(), unix.SOL_SOCKET, unix.SO_TIMESTAMPING, flags); err != nil {
		t.Fatal(err)
	}
	push(t, r).SocketTxTimestamps(on(a)).SetUserData(1)
	runTaskWork(t, r)
	for id := range 3 {
		before := time.Now()
		sendDatagram(t, a, b, "when?")
		c := awaitBig(t, r)
		at := time.Unix(int64(c.Big[0]), int64(c.Big[1]))
		if c.UserData != 1 || int(c.Res) != id || !c.Has(uring.CQEMore) {
			t.Errorf("completion %+v (%v)", c, c.Err())
		}
		// The wall clock may be set meanwhile; a difference of a minute is an error.
		if d := at.Sub(before); d < -time.Minute || d > time.Minute {
			t.Errorf("left at %v, sent at %v", at, before)
		}
	}
	cancelAll(t, r, 1)
}

// awaitBig submits pending entries and returns the next completion with both halves.
func awaitBig(t *testing.T, r *uring.Ring) uring.BigCQE {
	t.Helper()
	var c [1]uring.BigCQE
	for deadline := time.Now().Add(ringtest.Patience); ; {
		if r.ReapBig(c[:]) == 1 {
			return c[0]
		}
		if time.Now().After(deadline) {
			t.Fatalf("no completion after %v", ringtest.Patience)
		}
		if _, err := r.SubmitAndWaitTimeout(1, time.Second); err != nil {
			t.Fatal(err)
		}
	}
}

// blockDiscard drops the middle of a loop device.
func blockDiscard(t *testing.T, r *uring.Ring) {
	regular := tempFile(t, "text")
	wantErrno(t, ringtest.Do(t, r, func(e *uring.SQE) { e.BlockDiscard(fdOf(regular), 0, 4096) }), unix.EOPNOTSUPP)

	const size, from, n = 1 << 20, 64 << 10, 128 << 10
	data := pattern(size)
	dev := loopDevice(t, data)
	wantRes(t, ringtest.Do(t, r, func(e *uring.SQE) { e.BlockDiscard(fdOf(dev), from, n) }), 0)
	got := make([]byte, size)
	if _, err := dev.ReadAt(got, 0); err != nil {
		t.Fatal(err)
	}
	want := bytes.Clone(data)
	clear(want[from : from+n])
	if !bytes.Equal(got, want) {
		t.Error("the device does not hold zeros in the range, and the data elsewhere")
	}
	wantErrno(t, ringtest.Do(t, r, func(e *uring.SQE) { e.BlockDiscard(fdOf(dev), 1, 512) }), unix.EINVAL)
}

// loopDevice returns a block device with the given content, and skips the test where none
// can be created.
func loopDevice(t *testing.T, data []byte) *os.File {
	t.Helper()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("needs a loop device: %v", err)
	}
	defer control.Close()
	backing, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	if err != nil {
		t.Fatal(err)
	}
	defer backing.Close()
	if _, err := backing.Write(data); err != nil {
		t.Fatal(err)
	}
	for {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			t.Skipf("needs a loop device: %v", err)
		}
		dev, err := os.OpenFile("/dev/loop"+strconv.Itoa(n), os.O_RDWR, 0)
		if err != nil {
			t.Skipf("needs a loop device: %v", err)
		}
		config := &unix.LoopConfig{Fd: uint32(backing.Fd()), Size: 4096}
		config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR
		if err = unix.IoctlLoopConfigure(int(dev.Fd()), config); err == nil {
			t.Cleanup(func() { dev.Close() })
			return dev
		}
		dev.Close()
		if err != unix.EBUSY { // otherwise another process took the device first
			t.Skipf("needs a loop device: %v", err)
		}
	}
}
