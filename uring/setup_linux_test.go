// SPDX-License-Identifier: MIT

package uring_test

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Helpers for the tests of rings, as opposed to operations, that need Linux. Their names
// begin with ctl. setup_other_test.go has them for other systems, where every test skips
// before it calls one.

// ctlPipe returns a pipe's ends.
func ctlPipe(t testing.TB) (rd, wr int) {
	t.Helper()
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(p[0]); unix.Close(p[1]) })
	return p[0], p[1]
}

// ctlTCP returns the two ends of a TCP connection over loopback.
func ctlTCP(t testing.TB) (a, b int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return ctlDupConn(t, client), ctlDupConn(t, server)
}

// ctlDupConn returns a duplicate of a connection's descriptor.
func ctlDupConn(t testing.TB, c net.Conn) int {
	t.Helper()
	defer c.Close()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	fd := -1
	if err := raw.Control(func(s uintptr) { fd, err = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// ctlPackets returns two connected sockets that keep message boundaries.
func ctlPackets(t testing.TB) (a, b int) {
	t.Helper()
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(p[0]); unix.Close(p[1]) })
	return p[0], p[1]
}

// ctlWrite writes all of data. Any goroutine may call it.
func ctlWrite(t testing.TB, fd int, data []byte) {
	t.Helper()
	for len(data) > 0 {
		n, err := unix.Write(fd, data)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			t.Error(err)
			return
		}
		data = data[n:]
	}
}

// ctlShutdown ends the sending direction of a socket.
func ctlShutdown(t testing.TB, fd int) {
	t.Helper()
	if err := unix.Shutdown(fd, unix.SHUT_WR); err != nil {
		t.Fatal(err)
	}
}

// ctlEventFD returns an eventfd that does not block.
func ctlEventFD(t testing.TB) int {
	t.Helper()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// ctlEventCount reads and clears an eventfd.
func ctlEventCount(t testing.TB, fd int) uint64 {
	t.Helper()
	var b [8]byte
	switch _, err := unix.Read(fd, b[:]); err {
	case nil:
		return binary.NativeEndian.Uint64(b[:])
	case unix.EAGAIN:
		return 0
	default:
		t.Fatal(err)
		return 0
	}
}

// ctlOpen opens a file.
func ctlOpen(t testing.TB, path string, flags int) int {
	t.Helper()
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// ctlDirectFile returns a file opened with O_DIRECT that holds one page of the given byte,
// or skips the test where the file system does not support it.
func ctlDirectFile(t testing.TB, fill byte) int {
	t.Helper()
	name := filepath.Join(t.TempDir(), "direct")
	if err := os.WriteFile(name, []byte(strings.Repeat(string(rune(fill)), 4096)), 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EINVAL) {
		t.Skipf("needs O_DIRECT, which the file system of %s does not have", name)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Fsync(fd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func ctlClose(t testing.TB, fd int) {
	t.Helper()
	if err := unix.Close(fd); err != nil {
		t.Fatal(err)
	}
}

// ctlClock reads a clock by its number in uring.Clock.
func ctlClock(t testing.TB, id uint32) time.Duration {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(id), &ts); err != nil {
		t.Fatal(err)
	}
	return time.Duration(ts.Nano())
}

func ctlThreadID() int { return unix.Gettid() }

// ctlHarass sends a signal to a thread of the process repeatedly until stop is called,
// which returns how many it sent. It is the signal of the runtime's preemption, which the
// runtime ignores when it has not sent it.
func ctlHarass(t testing.TB, tid int) (stop func() int) {
	t.Helper()
	var ended atomic.Bool
	sent := make(chan int)
	go func() {
		n := 0
		for ; !ended.Load(); n++ {
			_ = unix.Tgkill(os.Getpid(), tid, unix.SIGURG)
			time.Sleep(time.Millisecond)
		}
		sent <- n
	}()
	return func() int { ended.Store(true); return <-sent }
}

// ctlAsUser runs f on this thread, which must be locked, with the effective user id of an
// unprivileged user.
func ctlAsUser(t testing.TB, f func()) {
	t.Helper()
	set := func(uid int) {
		// The raw call changes only this thread.
		if _, _, errno := syscall.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); errno != 0 {
			t.Fatalf("set effective user %d: %v", uid, errno)
		}
	}
	set(ctlNobody)
	defer set(0)
	f()
}

const (
	ctlNobody      = 65534
	ctlEBADFD      = unix.EBADFD
	ctlMsgDontWait = unix.MSG_DONTWAIT
	ctlMsgWaitAll  = unix.MSG_WAITALL

	ctlPopulateWrite = unix.MADV_POPULATE_WRITE // 5.14
)

// ctlUnpopulated calls f with memory that has no pages yet.
func ctlUnpopulated(t testing.TB, size int, f func(mem []byte)) {
	t.Helper()
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(mem) }()
	f(mem)
}

// ctlFIFO makes a FIFO.
func ctlFIFO(t testing.TB) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// ctlSearchable makes a directory of the test searchable for every user until the test
// ends.
func ctlSearchable(t testing.TB, dir string) {
	t.Helper()
	st, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if mode := st.Mode().Perm(); mode&0o1 == 0 {
		if err := os.Chmod(dir, mode|0o1); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(dir, mode) })
	}
}
