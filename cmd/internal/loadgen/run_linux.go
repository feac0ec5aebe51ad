// SPDX-License-Identifier: MIT

package loadgen

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/procstat"
)

// conn is one connection.
type conn struct {
	file  interface{ Close() error }
	i     int
	armed bool // a receive is in flight
	fd    int
	sent  time.Duration // when the message in flight was sent
	got   int           // how many of its bytes have come back
	n     uint64        // its number
	parts uint64        // a bit for each datagram of its answer that has come

	connecting bool
	idle       bool // nothing is in flight
}

// generator is the state of a run.
type generator struct {
	job    Job
	epfd   int
	conns  []conn
	buf    []byte
	msg    []byte  // what each connection sends; echoes begin with a number
	web    *answer // nil for echoes
	base   time.Time
	ops    int64
	waste  []byte // buffer for data that the kernel discards
	max    time.Duration
	looked time.Duration // when datagrams were last resent
	times  measure.Histogram
	events [256]unix.EpollEvent
	drain  bool        // answers are awaited, and no further messages are sent
	open   int         // connections whose answer is awaited while draining
	ring   *ringDriver // nil with epoll
	burst  *burst      // nil if an answer is one datagram
}

// wasteSize is the number of bytes that the kernel discards in one call.
const wasteSize = 1 << 20

// Run runs the job. It calls mark at the beginning and at the end of the measured window. An answer
// that differs from the message is an error. When ctx ends, Run returns early with the context's
// cause.
func Run(ctx context.Context, job Job, mark func(begin bool)) (res Result, err error) {
	if err := job.Check(); err != nil {
		return Result{}, err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	g := &generator{job: job, epfd: -1, buf: make([]byte, 64<<10), base: time.Now()}
	if job.TLS {
		return runTLS(ctx, job, mark)
	}
	g.msg = pattern(make([]byte, job.Size*max(1, job.Pipeline)))
	if job.Reply > 0 {
		g.web = newAnswer(pattern(make([]byte, job.Reply*max(1, job.Pipeline, job.Burst))))
	}
	if job.Burst > 0 {
		g.burst = newBurst(job)
	}
	if job.HTTP {
		g.msg = []byte(job.request())
		if g.web, err = learn(ctx, job.Network, job.Addr, job.request()); err != nil {
			return Result{}, err
		}
	}
	defer func() { err = errors.Join(err, g.close()) }()
	if err := g.connect(ctx); err != nil {
		return Result{}, err
	}
	if job.Discard {
		g.waste = make([]byte, wasteSize)
	}
	if !job.Epoll && !job.Discard && !job.Churn && !job.datagrams() {
		g.openRing()
	}
	if err := g.start(); err != nil {
		return Result{}, err
	}
	if err := g.pump(ctx, job.Warm); err != nil {
		return Result{}, err
	}
	if job.turns != nil {
		return res, g.takeTurns(ctx)
	}
	if res, err = g.window(ctx, mark); err != nil || job.Count == 0 {
		return res, err
	}
	return res, g.count(ctx, &res)
}

// takeTurns measures a window for each turn. Between turns no message is in flight.
func (g *generator) takeTurns(ctx context.Context) error {
	var counted Result
	if g.job.Count > 0 {
		if err := g.count(ctx, &counted); err != nil {
			return err
		}
	}
	for {
		if err := g.finish(ctx); err != nil {
			return err
		}
		d, more := g.job.turns.Next()
		if !more {
			return context.Cause(ctx)
		}
		s, err := g.turn(ctx, d)
		if err != nil {
			return err
		}
		if counted.Counted > 0 {
			s.Further = map[string]float64{SyscallsPerOp: float64(counted.Syscalls) / float64(counted.Counted)}
		}
		if err := g.job.turns.Report(s); err != nil {
			return err
		}
	}
}

// turn begins to send, and then measures a window. The first messages are not measured: while they
// are in flight nothing comes back, for as long as the latency is.
func (g *generator) turn(ctx context.Context, d time.Duration) (measure.Sample, error) {
	g.drain = false
	if err := g.start(); err != nil {
		return measure.Sample{}, err
	}
	if err := g.pump(ctx, max(d/8, time.Millisecond)+time.Duration(len(g.conns))*2*time.Microsecond); err != nil {
		return measure.Sample{}, err
	}
	g.job.Measure = d
	res, err := g.measure(ctx)
	return measure.Sample{
		Ops: res.Ops, Elapsed: res.Elapsed, CPU: &res.CPU, P50: res.P50, P99: res.P99, Max: res.Max,
	}, err
}

// finish waits for the messages in flight.
func (g *generator) finish(ctx context.Context) error {
	g.drain, g.open = true, len(g.conns)
	if err := g.pump(ctx, silence); err != nil {
		return err
	}
	if g.open > 0 {
		return fmt.Errorf("%d messages did not come back in %v", g.open, silence)
	}
	return nil
}

// SyscallsPerOp is the metric of a server's system calls for a message.
const SyscallsPerOp = "syscalls_per_op"

// window measures between two calls of mark.
func (g *generator) window(ctx context.Context, mark func(begin bool)) (Result, error) {
	mark(true)
	defer mark(false)
	return g.measure(ctx)
}

// count exchanges messages while the server's system calls are counted.
func (g *generator) count(ctx context.Context, res *Result) (err error) {
	calls, err := procstat.CountSyscalls(g.job.Pid)
	if errors.Is(err, procstat.ErrNotCounted) {
		res.Uncounted = err.Error()
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, calls.Close()) }()
	before, err := calls.Read()
	if err != nil {
		return err
	}
	ops := g.ops
	if err := g.pump(ctx, g.job.Count); err != nil {
		return err
	}
	after, err := calls.Read()
	if err == nil && g.ops > ops {
		res.Counted, res.Syscalls = g.ops-ops, after-before
	}
	return err
}

func (g *generator) connect(ctx context.Context) (err error) {
	if g.epfd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("epoll_create: %w", err)
	}
	g.conns = make([]conn, g.job.Connections)
	var d net.Dialer
	for i := range g.conns {
		c := &g.conns[i]
		c.fd, c.i = -1, i
		if g.job.Churn {
			if err := g.dial(c); err != nil {
				return err
			}
			continue
		}
		nc, err := d.DialContext(ctx, g.job.Network, g.job.Addr)
		if err != nil {
			return err
		}
		c.file = nc
		// The duplicate is not in Go's netpoller.
		raw, err := nc.(syscall.Conn).SyscallConn()
		if err != nil {
			return err
		}
		var dupErr error
		if err := raw.Control(func(fd uintptr) {
			c.fd, dupErr = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
		}); err != nil || dupErr != nil {
			return errors.Join(err, dupErr)
		}
		if err := nc.Close(); err != nil {
			return err
		}
		c.file = nil
		ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(i)}
		if err := unix.EpollCtl(g.epfd, unix.EPOLL_CTL_ADD, c.fd, &ev); err != nil {
			return fmt.Errorf("epoll_ctl: %w", err)
		}
	}
	return nil
}

func (g *generator) close() error {
	err := g.closeRing()
	for i := range g.conns {
		c := &g.conns[i]
		if c.file != nil {
			err = errors.Join(err, c.file.Close())
		}
		if c.fd >= 0 && (c.fd > 0) {
			err = errors.Join(err, unix.Close(c.fd))
		}
	}
	if g.epfd >= 0 {
		err = errors.Join(err, unix.Close(g.epfd))
	}
	return err
}

// start sends the first message of each connection.
func (g *generator) start() error {
	for i := range g.conns {
		if g.job.Churn { // Each sends once it is connected.
			if c := &g.conns[i]; g.job.turns != nil && !c.connecting {
				if err := g.dial(c); err != nil {
					return err
				}
			}
			continue
		}
		if err := g.send(&g.conns[i], time.Since(g.base)); err != nil {
			return err
		}
	}
	return nil
}

// dial opens a new connection. Its message is sent once it is connected.
func (g *generator) dial(c *conn) (err error) {
	if c.fd >= 0 {
		// Closing sends a reset, so that no port stays in TIME_WAIT.
		_ = unix.SetsockoptLinger(c.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		if err := unix.Close(c.fd); err != nil {
			return fmt.Errorf("close: %w", err)
		}
	}
	addr, err := netip.ParseAddrPort(g.job.Addr)
	if err != nil {
		return err
	}
	if c.fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0); err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	_ = unix.SetsockoptInt(c.fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	c.sent, c.connecting = time.Since(g.base), true
	err = unix.Connect(c.fd, &unix.SockaddrInet4{Addr: addr.Addr().As4(), Port: int(addr.Port())})
	if err != nil && err != unix.EINPROGRESS {
		return fmt.Errorf("connect: %w", err)
	}
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLET, Fd: int32(c.i)}
	if err := unix.EpollCtl(g.epfd, unix.EPOLL_CTL_ADD, c.fd, &ev); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

// dialed sends the message of a new connection.
func (g *generator) dialed(c *conn) error {
	if errno, err := unix.GetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_ERROR); err != nil || errno != 0 {
		return fmt.Errorf("connect: %w", errors.Join(err, unix.Errno(errno)))
	}
	c.connecting = false
	return g.send(c, c.sent) // The latency includes connecting.
}

// resendAfter is the time after which a datagram is considered lost.
const resendAfter = 100 * time.Millisecond

// resend sends lost datagrams again.
func (g *generator) resend() error {
	now := time.Since(g.base)
	if now < g.looked+resendAfter {
		return nil
	}
	g.looked = now
	for i := range g.conns {
		c := &g.conns[i]
		if now-c.sent < resendAfter || c.idle {
			continue
		}
		sent := c.sent // The latency includes the lost time.
		if err := g.send(c, now); err != nil {
			return err
		}
		c.sent = sent
	}
	return nil
}

// silence is how long a server may be silent from the beginning of the window.
const silence = 5 * time.Second

// measure runs the window.
func (g *generator) measure(ctx context.Context) (Result, error) {
	g.times = measure.Histogram{}
	g.ops, g.max = 0, 0
	cpu, err := g.job.cpu()
	if err != nil {
		return Result{}, err
	}
	own, _ := procstat.CPU(os.Getpid()) // 0 if unknown
	begin := time.Now()
	// On a busy machine a short window may end before any message comes back.
	for g.ops == 0 && time.Since(begin) < max(g.job.Measure, silence) {
		if err := g.pump(ctx, g.job.Measure); err != nil {
			return Result{}, err
		}
	}
	res := Result{Ops: g.ops, Elapsed: time.Since(begin), Max: g.max, By: g.by()}
	if used, err := procstat.CPU(os.Getpid()); err == nil {
		res.Busy = float64(used-own) / float64(res.Elapsed)
	}
	if g.web != nil {
		res.Answer = int64(len(g.web.text))
	}
	end, err := g.job.cpu()
	if err != nil {
		return Result{}, err
	}
	res.CPU = end - cpu
	res.P50, res.P99 = g.times.Quantile(0.5), g.times.Quantile(0.99)
	if g.ops == 0 {
		return Result{}, fmt.Errorf("no message came back in %v", res.Elapsed.Round(time.Millisecond))
	}
	return res, nil
}

// cpu returns the CPU time of the server's process.
func (j Job) cpu() (time.Duration, error) {
	return procstat.CPU(j.Pid)
}

// pump exchanges messages for d.
func (g *generator) pump(ctx context.Context, d time.Duration) error {
	if g.ring != nil {
		return g.pumpRing(ctx, d)
	}
	for end := time.Since(g.base) + d; time.Since(g.base) < end && !g.drained(); {
		n, errno := epollWait(g.epfd, g.events[:], 100)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return fmt.Errorf("epoll_wait: %w", errno)
		}
		if n == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		for i := range n {
			c := &g.conns[g.events[i].Fd]
			handle := g.receive
			if c.connecting {
				handle = g.dialed
			}
			if err := handle(c); err != nil {
				return err
			}
		}
		if g.job.datagrams() {
			if err := g.resend(); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// drained reports whether nothing is in flight any more.
func (g *generator) drained() bool { return g.drain && g.open == 0 }

// receive reads an answer and, once it is complete, sends the next message. No more data can arrive
// before that, so a short read needs no second one.
func (g *generator) receive(c *conn) error {
	if g.burst != nil {
		return g.receiveBurst(c)
	}
	for {
		if g.waste != nil && c.got > 0 {
			return g.discard(c)
		}
		n, errno := rw(unix.SYS_READ, c.fd, g.buf)
		switch {
		case errno == unix.EAGAIN || errno == unix.EINTR:
			return nil
		case errno != 0:
			return fmt.Errorf("read: %w", errno)
		case n == 0:
			return errors.New("the server closed a connection")
		}
		if all, err := g.take(c, g.buf[:n]); all || err != nil {
			return err
		}
		if n < len(g.buf) && !g.job.datagrams() {
			return nil // an edge will follow; of datagrams, a dropped one may have come before the awaited one
		}
	}
}

// discard makes the kernel discard the rest of an answer.
func (g *generator) discard(c *conn) error {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(c.fd), uintptr(unsafe.Pointer(&g.waste[0])), uintptr(len(g.waste)),
			unix.MSG_TRUNC|unix.MSG_DONTWAIT, 0, 0)
		switch {
		case errno == unix.EAGAIN || errno == unix.EINTR:
			return nil
		case errno != 0:
			return fmt.Errorf("recv: %w", errno)
		case n == 0:
			return errors.New("the server closed a connection")
		}
		if all, err := g.advance(c, int(n)); all || err != nil {
			return err
		}
		if int(n) < len(g.waste) {
			return nil // an edge will follow
		}
	}
}

// take compares a piece of an answer and, after the last piece, sends the next message.
func (g *generator) take(c *conn, p []byte) (all bool, err error) {
	if g.job.datagrams() && (len(p) != len(g.msg) || !bytes.Equal(p, g.message(c))) {
		return false, nil // the answer to a datagram that was sent twice
	}
	if len(p) > g.expected()-c.got {
		return false, errTooMuch
	}
	if err := g.compare(c, p); err != nil {
		return false, err
	}
	return g.advance(c, len(p))
}

var errTooMuch = errors.New("the server sent more than was asked for")

// advance counts a piece of an answer and, after the last piece, sends the next message.
func (g *generator) advance(c *conn, n int) (all bool, err error) {
	want := g.expected()
	if n > want-c.got {
		return false, errTooMuch
	}
	if c.got += n; c.got < want {
		return false, nil
	}
	now := time.Since(g.base)
	took := now - c.sent
	g.ops += int64(max(1, g.job.Pipeline))
	g.max = max(g.max, took)
	g.times.Record(took)
	c.n++
	if g.drain {
		c.idle = true
		g.open--
		return true, nil
	}
	if g.job.Churn {
		return true, g.dial(c)
	}
	return true, g.send(c, now)
}

// expected returns the length of an answer.
func (g *generator) expected() int {
	if g.web != nil {
		return len(g.web.text)
	}
	return len(g.msg)
}

// compare checks a piece of an answer. The first bytes of an echo are its
// number.
func (g *generator) compare(c *conn, p []byte) error {
	if g.web != nil {
		return g.web.compare(c.got, p)
	}
	if !bytes.Equal(p, g.message(c)[c.got:c.got+len(p)]) {
		return fmt.Errorf("message %d of a connection came back changed", c.n)
	}
	return nil
}

// message returns the next message of the connection.
func (g *generator) message(c *conn) []byte {
	g.number(g.msg, c)
	return g.msg
}

// number makes an echo, and an answer of several datagrams, differ from the previous one.
func (g *generator) number(msg []byte, c *conn) {
	if (g.web == nil || g.burst != nil) && len(msg) >= 8 {
		binary.NativeEndian.PutUint64(msg, c.n)
	}
}

func (g *generator) send(c *conn, now time.Duration) error {
	c.got, c.parts, c.sent, c.idle = 0, 0, now, false
	if g.ring != nil {
		return g.sendRing(c)
	}
	for p := g.message(c); len(p) > 0; {
		n, errno := rw(unix.SYS_WRITE, c.fd, p)
		switch errno {
		case 0:
			p = p[n:]
		case unix.EINTR, unix.EAGAIN: // The server reads, so it can continue soon.
		default:
			return fmt.Errorf("write: %w", errno)
		}
	}
	return nil
}

// rw reads or writes without entering the scheduler, which has nothing else to run.
func rw(call uintptr, fd int, p []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	return int(n), errno
}

func epollWait(epfd int, events []unix.EpollEvent, millis int) (int, unix.Errno) {
	n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT, uintptr(epfd),
		uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), uintptr(millis), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}
