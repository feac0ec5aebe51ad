// SPDX-License-Identifier: MIT

// Package echo has the servers of the suite "net", each written as its library is meant to be used.
// They send back what they receive, some after work. Those with a net.Listener serve HTTP as well.
package echo

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/ringside-io/ringside/unet/event"
)

// These are the names of the engines in tables and result files.
const (
	NameStd   = "std"
	NameEvent = "ringside-event"
	// NameEpoll is the control of NameEvent: the same callbacks on epoll.
	NameEpoll = "ringside-event-epoll"
	// NameBlocking runs handlers for a net.Conn as coroutines of the loops.
	NameBlocking = "ringside-event-blocking"
	NameConn     = "ringside-conn"
	// NamePlain is the control of NameConn: the same design without a ring.
	NamePlain = "ringside-plain"
	// NameBatch and NameXNet serve only datagrams: by unet's BatchConn, and by golang.org/x/net's
	// ReadBatch and WriteBatch.
	NameBatch = "ringside-batch"
	NameXNet  = "xnet-batch"
)

// Server is a running echo server.
type Server interface {
	// Addr returns the address of its listener.
	Addr() string
	// Backend returns the mechanism that the engine uses, and the reason.
	Backend() (name, reason string)
	// Enters returns the number of calls of io_uring_enter, or -1 if they are not counted.
	Enters() int64
	// Close stops the server.
	Close() error
}

// ErrUnknown is matched by the error of [Start] for an unknown name.
var ErrUnknown = errors.New("unknown engine")

// Start starts an engine on a loopback port that the system chooses.
func Start(s Setup) (Server, error) {
	start := starters[s.Engine]
	if start == nil && s.Engine == NameXNet {
		return nil, fmt.Errorf("%w %q: built without it: needs -tags peers, on Linux or macOS", ErrUnknown, s.Engine)
	}
	if start == nil {
		return nil, fmt.Errorf("%w %q", ErrUnknown, s.Engine)
	}
	if s.Dial > 0 {
		return startDial(s)
	}
	return start(s)
}

// starters are the engines available on this system.
var starters = map[string]func(Setup) (Server, error){
	NameStd:   startStd,
	NameConn:  startConn,
	NamePlain: startPlain,
	NameBatch: startBatch,

	NameEvent:    startsEvent(event.Options{}, callbacks),
	NameBlocking: startsEvent(event.Options{}, coroutines),
	NameEpoll:    startsEvent(event.Options{Mode: event.ModeEpoll}, callbacks),
}

// loopback is the address on which servers listen.
const loopback = "127.0.0.1:0"

// Setup describes a server process.
type Setup struct {
	// Engine is its name.
	Engine string `json:"engine"`
	// Procs is the GOMAXPROCS of the process, or 0 for the default. The parent sets it when the
	// process starts.
	Procs int `json:"procs,omitempty"`
	// Network is "tcp", "unix" or "udp". Empty means "tcp".
	Network string `json:"network,omitempty"`
	// TLS makes the server use TLS, with a certificate made for the run.
	TLS bool `json:"tls,omitempty"`
	// Give, if not 0, makes the server answer each message of Take bytes with Give bytes instead of
	// an echo.
	Take int `json:"take,omitempty"`
	Give int `json:"give,omitempty"`
	// Burst, if not 0, makes the server answer each datagram with Burst datagrams of Give bytes. Each
	// begins with the first 8 bytes of the request, and its index in 4 bytes.
	Burst int `json:"burst,omitempty"`
	// Pin keeps the server on one processor and the load generator off it.
	Pin bool `json:"pin,omitempty"`
	// Work is done for each message before it is sent back.
	Work Work `json:"work,omitzero"`
	// Computing is the number of goroutines of the process that compute and never block.
	Computing int `json:"computing,omitempty"`
	// Dial, if not 0, is the length of a message. The server then dials another server for each
	// message, and sends back the echo of that server.
	Dial int `json:"dial,omitempty"`
	// HTTP, if not 0, makes it a server of net/http whose response bodies have HTTP bytes.
	HTTP int `json:"http,omitempty"`
	// Fast makes it a server of fasthttp instead.
	Fast bool `json:"fast,omitempty"`
	// Buffer is the length of each connection's buffer; 0 means 4 KiB.
	Buffer int `json:"buffer,omitempty"`
}

// Work is the work of a handler.
type Work struct {
	// Spins is the number of computing steps, see [SpinsPerMicrosecond].
	Spins int `json:"spins,omitempty"`
	// Sleep is the time to sleep.
	Sleep time.Duration `json:"sleep_ns,omitempty"`
}

// do does the work.
func (w Work) do() {
	if w.Spins > 0 {
		runtime.KeepAlive(spin(w.Spins))
	}
	if w.Sleep > 0 {
		time.Sleep(w.Sleep)
	}
}

// bufSize is the default length of a connection's buffer.
const bufSize = 4 << 10

func (s Setup) buffer() []byte {
	if s.Buffer > 0 {
		return make([]byte, s.Buffer)
	}
	return make([]byte, bufSize)
}

// plain returns an error if the setup needs more than an echo of streams.
func (s Setup) plain() error {
	if s.HTTP > 0 || s.Work != (Work{}) || s.TLS || s.Network == "udp" {
		return fmt.Errorf("engine %s only echoes streams", s.Engine)
	}
	return nil
}

// listen listens on the network of the setup, with TLS if the setup has it.
func (s Setup) listen(listen func(network, address string) (net.Listener, error)) (net.Listener, error) {
	ln, err := listen(s.at())
	if err != nil || !s.TLS {
		return ln, err
	}
	cert, err := selfSigned()
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{cert}}), nil
}

// at returns the address of the server. The kernel removes the name of a Unix socket in the
// abstract namespace when the socket is closed.
func (s Setup) at() (network, address string) {
	switch s.Network {
	case "unix":
		return s.Network, "@ringside-bench-" + rand.Text()
	case "":
		return "tcp", loopback
	}
	return s.Network, loopback
}

// selfSigned makes a certificate.
func selfSigned() (cert tls.Certificate, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return cert, err
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, about, about, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// answer returns the answer to each message, or nil for echoes.
func (s Setup) answer() []byte {
	if s.Give == 0 {
		return nil
	}
	p := make([]byte, s.Give*max(1, s.Burst))
	for i := range p {
		p[i] = byte(i*7 + i>>8)
	}
	return p
}

// spin computes for a number of steps, each of which depends on the one before. It can be
// preempted.
//
//go:noinline
func spin(steps int) uint64 {
	x := uint64(steps) | 1
	for range steps {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

// SpinsPerMicrosecond measures how many steps an undisturbed processor computes in a microsecond.
// All servers of a run use the result of one measurement.
func SpinsPerMicrosecond() float64 {
	const steps = 100_000
	best := time.Duration(1<<63 - 1)
	for range 50 {
		begin := time.Now()
		runtime.KeepAlive(spin(steps))
		best = min(best, time.Since(begin))
	}
	return steps * float64(time.Microsecond) / float64(max(best, 1))
}

// unitSpins makes a unit of computation about 20 µs long on a processor of 2020. Counting units then
// costs nothing, and a unit is far shorter than a time slice.
const unitSpins = 10_000

// computation counts the units of computation of a process.
type computation struct {
	began time.Time
	units atomic.Int64
}

// compute starts goroutines that compute until the process ends.
func compute(goroutines int) *computation {
	c := &computation{began: time.Now()}
	for range goroutines {
		go func() {
			for {
				runtime.KeepAlive(spin(unitSpins))
				c.units.Add(1)
			}
		}()
	}
	return c
}

// Hello is the first line of a server process. It has the server's address.
type Hello struct {
	Addr    string `json:"addr"`
	Pid     int    `json:"pid"`
	Backend string `json:"backend,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// Count is the answer of a server process to each line: counters since its start.
type Count struct {
	Enters  int64  `json:"enters"`
	Objects uint64 `json:"objects"`
	Bytes   uint64 `json:"bytes"`
	// Live is the size of heap and stacks. It is in the answer to "settle", which comes after all
	// garbage has been collected and returned to the system.
	Live uint64 `json:"live,omitempty"`
	// Units is the number of units of computation, and At the time at which they were counted: with
	// busy processors a server answers late.
	Units int64         `json:"units,omitempty"`
	At    time.Duration `json:"at_ns"`
}

// These are the lines that a server process accepts.
const (
	askCount  = "count"
	askSettle = "settle"
)

// Serve runs an engine in this process. It writes a Hello, and then a Count for each line that it
// reads. It ends at the end of its input.
func Serve(setup Setup, in io.Reader, out io.Writer) error {
	s, err := Start(setup)
	if err != nil {
		return err
	}
	beside := compute(setup.Computing)
	enc := json.NewEncoder(out)
	h := Hello{Addr: s.Addr(), Pid: os.Getpid()}
	h.Backend, h.Reason = s.Backend()
	if err := enc.Encode(h); err != nil {
		return err
	}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		c := count(s, lines.Text() == askSettle)
		c.Units, c.At = beside.units.Load(), time.Since(beside.began)
		if err := enc.Encode(c); err != nil {
			return err
		}
	}
	return nil // Ending the process is the quickest way to stop its server.
}

func count(s Server, settle bool) Count {
	if settle {
		debug.FreeOSMemory()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	c := Count{Enters: s.Enters(), Objects: m.Mallocs, Bytes: m.TotalAlloc}
	if settle {
		c.Live = m.HeapAlloc + m.StackInuse
	}
	return c
}
