// SPDX-License-Identifier: MIT

package event

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime/pprof"
	"runtime/trace"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// engine runs a server on one kind of backend.
type engine interface {
	// shutdown stops accepting and lets the connections end. It may be called
	// again.
	shutdown()
	// abort ends everything. It may be called again, and after shutdown.
	abort()
	// enroll takes over a connection. nc still belongs to the caller, who closes it
	// after a success.
	enroll(nc net.Conn, o ConnOptions) (*Conn, error)
	// shareAddress returns how many datagram sockets share an address, and sets up lc
	// to open that many. servePackets takes over one socket for each element of all.
	shareAddress(lc *net.ListenConfig) int
	servePackets(all []*PacketConn, sockets []net.PacketConn) error
	// done is closed when nothing is left.
	done() <-chan struct{}
	// health returns the state that Done and Err report.
	health() *health
	stats() Stats
}

// Stats holds counters since the start of a server. Open is the current number.
type Stats struct {
	Accepted uint64 `json:"accepted"` // accepted connections
	Open     int    `json:"open"`     // connections that are open now
	// AcceptRetries is how often accepting paused because the process or the system had
	// no descriptor or memory left.
	AcceptRetries uint64 `json:"acceptRetries"`
	Enrolled      uint64 `json:"enrolled"` // connections from Enroll and Dial
	// PacketsReceived and PacketsSent count datagrams.
	PacketsReceived uint64 `json:"packetsReceived"`
	PacketsSent     uint64 `json:"packetsSent"`
	Enters          uint64 `json:"enters"`    // calls of io_uring_enter
	Completed       uint64 `json:"completed"` // completions reaped
	Sleeps          uint64 `json:"sleeps"`    // how often a loop slept
	// Rearms is how often a receive was started again. Reasons are that buffers had run
	// out (Starved counts these), that reading was stopped for a while, and that the loop
	// had moved to another thread.
	Rearms  uint64 `json:"rearms"`
	Starved uint64 `json:"starved"`
}

// counters are the counters of Stats.
type counters struct {
	accepted, acceptRetries, enrolled, enters, completions, sleeps, rearms, noBuffers, packetsReceived, packetsSent atomic.Uint64
	open                                                                                                            atomic.Int64
}

func (c *counters) stats() Stats {
	return Stats{
		Accepted: c.accepted.Load(), Open: int(c.open.Load()), AcceptRetries: c.acceptRetries.Load(), Enrolled: c.enrolled.Load(),
		Enters: c.enters.Load(), Completed: c.completions.Load(), Sleeps: c.sleeps.Load(),
		Rearms: c.rearms.Load(), Starved: c.noBuffers.Load(),
		PacketsReceived: c.packetsReceived.Load(), PacketsSent: c.packetsSent.Load(),
	}
}

// Plus returns the sum of two sets of counters.
func (s Stats) Plus(t Stats) Stats {
	return Stats{
		Accepted:        s.Accepted + t.Accepted,
		Open:            s.Open + t.Open,
		AcceptRetries:   s.AcceptRetries + t.AcceptRetries,
		Enrolled:        s.Enrolled + t.Enrolled,
		Enters:          s.Enters + t.Enters,
		Completed:       s.Completed + t.Completed,
		Sleeps:          s.Sleeps + t.Sleeps,
		Rearms:          s.Rearms + t.Rearms,
		Starved:         s.Starved + t.Starved,
		PacketsReceived: s.PacketsReceived + t.PacketsReceived,
		PacketsSent:     s.PacketsSent + t.PacketsSent,
	}
}

// health is the state that Done and Err report.
type health struct {
	ended chan struct{} // closed at the first failure, or when nothing is left
	once  sync.Once
	mu    sync.Mutex
	err   error
}

func (h *health) failure() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// end records that nothing is left or, with an error, that a loop has failed.
func (h *health) end(err error) {
	h.mu.Lock()
	if h.err == nil {
		h.err = err
	}
	h.mu.Unlock()
	h.once.Do(func() { close(h.ended) })
}

// tally counts loops or goroutines until a server is done.
type tally struct {
	wg    sync.WaitGroup
	over  chan struct{}
	state health
}

func (t *tally) health() *health { return &t.state }

func (t *tally) done() <-chan struct{} { return t.over }

// closeWhenDone is called when the last member has been added.
func (t *tally) closeWhenDone(last func()) {
	t.over, t.state.ended = make(chan struct{}), make(chan struct{})
	go func() {
		t.wg.Wait()
		last()
		t.state.end(nil)
		close(t.over)
	}()
}

// label labels the goroutine of a loop for profiles, if the options ask for it.
func (s *Server) label(loop int) {
	if s.opts.Trace {
		pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels("ringside", "event", "loop", strconv.Itoa(loop))))
	}
}

// traces reports whether turns are to be recorded as regions: the options ask for it and
// a trace is being taken.
func (s *Server) traces() bool { return s.opts.Trace && trace.IsEnabled() }

// region begins the region of a turn.
func region() *trace.Region { return trace.StartRegion(context.Background(), "event.turn") }

// maxBacklog returns the largest number of connections that may wait to be accepted.
func maxBacklog() int {
	const usual = 4096 // Linux's default, larger than the defaults of other systems
	text, err := os.ReadFile("/proc/sys/net/core/somaxconn")
	if err != nil {
		return usual
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return usual
	}
	return n + 1
}

// bindTime is how long an address that is in use is tried again. The kernel takes the ring of a
// process down after the process has ended, up to 30 ms on an idle machine, and the ring holds
// the sockets on which it receives or accepts.
const bindTime = 200 * time.Millisecond

// bind calls f again for bindTime if an address is in use.
func bind(f func() error) error {
	for begin := time.Now(); ; time.Sleep(retryPause) {
		if err := f(); !errors.Is(err, syscall.EADDRINUSE) || time.Since(begin) > bindTime {
			return err
		}
	}
}
