// SPDX-License-Identifier: MIT

package sockets

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// envNamespace is set in the child that has its own network namespace.
const envNamespace = "RINGSIDE_TEST_NAMESPACE"

// inNamespace runs the rest of a test in a child with its own network namespace, in which it has
// all privileges. It needs no privileges if users may create namespaces.
func inNamespace(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes minutes: not with -short")
	}
	if os.Getenv(envNamespace) == t.Name() {
		up(t, "lo")
		f(t)
		return
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.parallel=16", "-test.timeout=2m")
	// By default the race detector sleeps for a second at the end.
	cmd.Env = append(os.Environ(), envNamespace+"="+t.Name(), "GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	switch exit, ran := errors.AsType[*exec.ExitError](err); {
	case ran:
		t.Errorf("%v\n%s", exit, out)
	case err != nil:
		t.Skipf("needs user and network namespaces: %v", err)
	case strings.Contains(string(out), "--- SKIP: "+t.Name()+" "):
		t.Skipf("%s", out)
	default:
		t.Logf("%s", out)
	}
}

// These are the address of the wire's end and the address behind it. Packets to the second address
// come back from it, so that one network stack is both sides.
var (
	here  = netip.MustParseAddr("10.99.0.1")
	there = netip.MustParseAddr("10.99.0.2")
)

// wire is a network interface with a faulty link. A packet from here to there is delayed, lost,
// duplicated, reordered, dropped or made a reset, and comes back as a packet from there to here.
// The sum over both addresses stays the same, and so do the checksums.
type wire struct {
	tun   *os.File
	queue chan late
	over  sync.WaitGroup

	// These are set before there is traffic.
	delay                   time.Duration // each way
	loss, double, overtaken float64       // probabilities

	cut      atomic.Bool  // all packets are lost
	resetTo  atomic.Int32 // the next data to this port becomes a reset
	resetOff atomic.Int32 // the next data from this port

	passed, lost atomic.Int64
}

type late struct {
	due    time.Time
	packet []byte
}

const wireName = "wire0"

// newWire makes the interface; the test must be in a namespace.
func newWire(t *testing.T, w *wire) *wire {
	t.Helper()
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("needs /dev/net/tun: %v", err)
	}
	r := ifreq(t, wireName)
	r.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, r); err != nil {
		_ = unix.Close(fd)
		t.Skipf("needs an interface of the kind tun: %v", err)
	}
	// Only now, because the poller does not accept a tun without an interface.
	w.tun, w.queue = os.NewFile(uintptr(fd), "tun"), make(chan late, 1<<14)
	configure(t, unix.SIOCSIFADDR, func(r *unix.Ifreq) error { return r.SetInet4Addr(here.AsSlice()) })
	configure(t, unix.SIOCSIFNETMASK, func(r *unix.Ifreq) error { return r.SetInet4Addr([]byte{255, 255, 255, 0}) })
	up(t, wireName)
	w.over.Go(w.read)
	w.over.Go(w.deliver)
	t.Cleanup(func() {
		_ = w.tun.Close()
		w.over.Wait()
		t.Logf("the wire passed %d packets and lost %d", w.passed.Load(), w.lost.Load())
	})
	return w
}

func ifreq(t *testing.T, name string) *unix.Ifreq {
	t.Helper()
	r, err := unix.NewIfreq(name)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// configure sets up the wire's interface.
func configure(t *testing.T, code uint, set func(r *unix.Ifreq) error) {
	t.Helper()
	r := ifreq(t, wireName)
	if err := set(r); err != nil {
		t.Fatal(err)
	}
	if err := control(code, r); err != nil {
		t.Fatal(err)
	}
}

func control(code uint, r *unix.Ifreq) error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	return unix.IoctlIfreq(s, code, r)
}

// up and down set an interface's state.
func up(t *testing.T, name string)   { t.Helper(); setFlags(t, name, unix.IFF_UP|unix.IFF_RUNNING) }
func down(t *testing.T, name string) { t.Helper(); setFlags(t, name, 0) }

func setFlags(t *testing.T, name string, flags uint16) {
	t.Helper()
	r := ifreq(t, name)
	r.SetUint16(flags)
	if err := control(unix.SIOCSIFFLAGS, r); err != nil {
		t.Fatal(err)
	}
}

// read reads packets from the interface and applies the faults.
func (w *wire) read() {
	defer close(w.queue)
	r := rand.New(rand.NewPCG(1, 2))
	buf := make([]byte, 1<<16)
	for {
		n, err := w.tun.Read(buf)
		if err != nil {
			return // closed, or the interface is down
		}
		p := append([]byte(nil), buf[:n]...)
		if n < 40 || p[0]>>4 != 4 || p[9] != unix.IPPROTO_TCP {
			continue
		}
		w.judge(p, r)
	}
}

func (w *wire) judge(p []byte, r *rand.Rand) {
	head := int(p[0]&15) * 4
	if w.cut.Load() || r.Float64() < w.loss {
		w.lost.Add(1)
		return
	}
	from, to := int32(binary.BigEndian.Uint16(p[head:])), int32(binary.BigEndian.Uint16(p[head+2:]))
	data := len(p) > head+int(p[head+12]>>4)*4
	if data && (w.resetTo.CompareAndSwap(to, 0) || w.resetOff.CompareAndSwap(from, 0)) {
		p = reset(p, head)
	}
	var src [4]byte
	copy(src[:], p[12:16])
	copy(p[12:16], p[16:20])
	copy(p[16:20], src[:])
	w.passed.Add(1)
	l := late{time.Now().Add(w.delay), p}
	if r.Float64() < w.overtaken {
		time.AfterFunc(2*w.delay, func() { _, _ = w.tun.Write(p) })
		return
	}
	w.queue <- l
	if r.Float64() < w.double {
		w.queue <- l
	}
}

// deliver writes packets back when they are due.
func (w *wire) deliver() {
	for l := range w.queue {
		time.Sleep(time.Until(l.due))
		_, _ = w.tun.Write(l.packet) // it may be closed, or the interface down
	}
}

// reset turns a packet of a TCP connection into a reset with the same sequence number.
func reset(p []byte, head int) []byte {
	p = p[:head+20]
	tcp := p[head:]
	tcp[12], tcp[13] = 5<<4, 0x14 // RST, ACK
	binary.BigEndian.PutUint16(p[2:], uint16(len(p)))
	binary.BigEndian.PutUint16(p[10:], 0)
	binary.BigEndian.PutUint16(p[10:], ^sum16(0, p[:head]))
	binary.BigEndian.PutUint16(tcp[16:], 0)
	pseudo := sum16(uint32(unix.IPPROTO_TCP+len(tcp)), p[12:20])
	binary.BigEndian.PutUint16(tcp[16:], ^sum16(uint32(pseudo), tcp))
	return p
}

// sum16 adds words in one's complement.
func sum16(sum uint32, p []byte) uint16 {
	for ; len(p) > 0; p = p[2:] {
		sum += uint32(binary.BigEndian.Uint16(p))
	}
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}

// throughWire returns the address at which a server that listens here is reachable over the wire.
func throughWire(t *testing.T, address string) string {
	t.Helper()
	a, err := netip.ParseAddrPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%v:%d", there, a.Port())
}
