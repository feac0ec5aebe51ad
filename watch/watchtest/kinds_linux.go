// SPDX-License-Identifier: MIT

package watchtest

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/watch"
)

// source is a descriptor and the functions that change its readiness.
type source struct {
	fd    int
	event watch.Events
	fire  func()
	drain func() // ends the state; nil where nothing does
}

// kinds are the pollable kinds of descriptors. A nil source stands for a kind that the
// system lacks.
var kinds = map[string]func(r *rig) *source{
	"unix":      unixSocket,
	"tcp":       tcpSocket,
	"listener":  listener,
	"udp":       udpSocket,
	"pipe":      pipeReader,
	"pipewrite": pipeWriter,
	"eventfd":   eventFD,
	"timerfd":   timerFD,
	"signalfd":  signalFD,
	"inotify":   inotify,
	"pidfd":     pidFD,
	"tty":       tty,
	"pty":       pty,
	"netlink":   netlink,
	"epoll":     nested,
}

func kindCases() []testCase {
	var cases []testCase
	for name, open := range kinds {
		cases = append(cases, testCase{name, on(func(r *rig) {
			for _, mode := range everyMode {
				if s := open(r); s != nil {
					kind(r, s, mode)
				}
			}
		})})
	}
	return cases
}

// kind watches a source that is not ready, then ready, then not any more.
func kind(r *rig, s *source, mode watch.Trigger) {
	r.add(s.fd, s.event, mode)
	r.quiet()
	s.fire()
	r.awaitOne(s.fd, s.event)
	if mode == watch.Level {
		r.awaitOne(s.fd, s.event)
	}
	if s.drain != nil {
		s.drain()
		r.turn(0)
		r.quiet()
		r.ok(r.w.Modify(s.fd, s.event, mode, s.fd))
		s.fire()
		r.awaitOne(s.fd, s.event)
		s.drain()
	}
	r.ok(r.w.Remove(s.fd))
	r.quiet()
}

func unixSocket(r *rig) *source {
	a, b := r.pair()
	return &source{a, watch.Read, func() { write(r, b, "x") }, func() { r.drain(a) }}
}

func pipeReader(r *rig) *source {
	rd, wr := r.pipe()
	return &source{rd, watch.Read, func() { write(r, wr, "x") }, func() { r.drain(rd) }}
}

func pipeWriter(r *rig) *source {
	rd, wr := r.pipe()
	fill(r, wr)
	return &source{wr, watch.Write, func() { r.drain(rd) }, func() { fill(r, wr) }}
}

func eventFD(r *rig) *source {
	fd := r.counter()
	return &source{fd, watch.Read, func() { r.signal(fd) }, func() { r.drain(fd) }}
}

func timerFD(r *rig) *source {
	fd, err := sys.TimerFD(50 * time.Millisecond)
	r.ok(err)
	r.fds[fd.Int()] = fd
	return &source{fd.Int(), watch.Read, func() {}, nil}
}

// signalFD reads a signal that is sent to the thread of the test, which blocks
// it. The thread is the one that waits.
func signalFD(r *rig) *source {
	const sig = syscall.SIGUSR2
	r.ok(sys.MaskSignal(sig, true))
	fd, err := sys.SignalFD(sig)
	r.ok(err)
	r.fds[fd.Int()] = fd
	tid := sys.ThreadID()
	drain := func() { r.drain(fd.Int()) }
	return &source{fd.Int(), watch.Read, func() { r.ok(sys.SignalThread(tid, sig)) }, drain}
}

func inotify(r *rig) *source {
	fd, err := syscall.InotifyInit1(syscall.IN_NONBLOCK | syscall.IN_CLOEXEC)
	r.ok(err)
	r.own(fd)
	dir := r.TempDir()
	_, err = syscall.InotifyAddWatch(fd, dir, syscall.IN_CREATE)
	r.ok(err)
	n := 0
	return &source{fd, watch.Read, func() {
		n++
		r.ok(os.WriteFile(filepath.Join(dir, string(rune('a'+n))), nil, 0o600))
	}, func() { r.drain(fd) }}
}

// pidFD waits for a child, this very program, which is stopped before it runs and
// then killed.
func pidFD(r *rig) *source {
	p, err := os.StartProcess("/proc/self/exe", []string{"stopped"}, &os.ProcAttr{Sys: &syscall.SysProcAttr{Ptrace: true}})
	r.ok(err)
	r.Cleanup(func() {
		_ = p.Kill()
		_, _ = p.Wait()
	})
	fd, err := sys.PidFD(p.Pid)
	r.ok(err)
	r.fds[fd.Int()] = fd
	return &source{fd.Int(), watch.Read, func() { r.ok(p.Kill()) }, nil}
}

func terminal(r *rig) (master, slave int) {
	m, s, err := sys.Terminal()
	if errors.Is(err, fs.ErrNotExist) {
		r.Skipf("needs pseudo-terminals: %v", err)
	}
	r.ok(err)
	r.fds[m.Int()], r.fds[s.Int()] = m, s
	return m.Int(), s.Int()
}

func tty(r *rig) *source {
	m, s := terminal(r)
	return &source{s, watch.Read, func() { write(r, m, "x") }, func() { r.drain(s) }}
}

func pty(r *rig) *source {
	m, s := terminal(r)
	return &source{m, watch.Read, func() { write(r, s, "x") }, func() { r.drain(m) }}
}

// netlink asks for the interfaces.
func netlink(r *rig) *source {
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, syscall.NETLINK_ROUTE)
	r.ok(err)
	r.own(fd)
	request := binary.NativeEndian.AppendUint32(nil, syscall.NLMSG_HDRLEN+syscall.SizeofRtGenmsg)
	request = binary.NativeEndian.AppendUint16(request, syscall.RTM_GETLINK)
	request = binary.NativeEndian.AppendUint16(request, syscall.NLM_F_REQUEST|syscall.NLM_F_DUMP)
	request = append(request, make([]byte, 8+syscall.SizeofRtGenmsg)...)
	return &source{fd, watch.Read, func() {
		r.ok(syscall.Sendto(fd, request, 0, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}))
	}, func() { r.drain(fd) }}
}

func nested(r *rig) *source {
	ep, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	r.ok(err)
	r.own(ep)
	fd := r.counter()
	r.ok(syscall.EpollCtl(ep, syscall.EPOLL_CTL_ADD, fd, &syscall.EpollEvent{Events: syscall.EPOLLIN}))
	return &source{ep, watch.Read, func() { r.signal(fd) }, func() { r.drain(fd) }}
}

var loopback = [4]byte{127, 0, 0, 1}

// inet opens a socket that is bound to the loopback.
func inet(r *rig, kind int) (fd int, addr syscall.Sockaddr) {
	fd, err := syscall.Socket(syscall.AF_INET, kind|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	r.ok(err)
	r.own(fd)
	r.ok(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: loopback}))
	addr, err = syscall.Getsockname(fd)
	r.ok(err)
	return fd, addr
}

func udpSocket(r *rig) *source {
	fd, addr := inet(r, syscall.SOCK_DGRAM)
	peer, _ := inet(r, syscall.SOCK_DGRAM)
	return &source{fd, watch.Read, func() { r.ok(syscall.Sendto(peer, []byte("x"), 0, addr)) }, func() { r.drain(fd) }}
}

// dial starts a connect to addr, which may not have completed when dial returns.
func dial(r *rig, addr syscall.Sockaddr) int {
	fd, _ := inet(r, syscall.SOCK_STREAM)
	if err := syscall.Connect(fd, addr); err != syscall.EINPROGRESS {
		r.ok(err)
	}
	return fd
}

func listener(r *rig) *source {
	fd, addr := inet(r, syscall.SOCK_STREAM)
	r.ok(syscall.Listen(fd, 8))
	return &source{fd, watch.Read, func() { dial(r, addr) }, func() {
		conn, _, err := syscall.Accept4(fd, syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC)
		r.ok(err)
		r.own(conn)
	}}
}

func tcpSocket(r *rig) *source {
	l := listener(r)
	addr, err := syscall.Getsockname(l.fd)
	r.ok(err)
	peer := dial(r, addr)
	fd, _, err := syscall.Accept4(l.fd, syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC)
	r.ok(err)
	r.own(fd)
	return &source{fd, watch.Read, func() { write(r, peer, "x") }, func() { r.drain(fd) }}
}
