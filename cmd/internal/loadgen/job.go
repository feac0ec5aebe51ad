// SPDX-License-Identifier: MIT

// Package loadgen drives an echo server over many connections from one thread.
//
// It runs on the machine whose server is measured, and takes CPU time from the server, so it must
// be cheap. If it can, it uses io_uring to receive and send for many connections with one call, and
// otherwise epoll. It has no goroutine per connection and does not allocate while it measures. It
// should run in a process of its own.
package loadgen

import (
	"fmt"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// Job describes a load. Each connection sends a message, waits until all of it has come back,
// compares it, and sends the next.
type Job struct {
	// HTTP makes each message an HTTP/1.1 request for "/". All answers must equal the first one
	// except for the date. Size is not used.
	HTTP bool `json:"http,omitempty"`
	// Body, if not 0, makes each request a POST whose body has Body bytes.
	Body int `json:"body,omitempty"`
	// Discard compares only the beginning of each answer with the first one, and lets the kernel
	// discard the rest. It is for long answers, with which the generator would be the bottleneck.
	// It uses epoll.
	Discard bool `json:"discard,omitempty"`
	// Reply is the length of the answer to each message if the server does not echo. Its bytes are
	// i*7 + i/256.
	Reply int `json:"reply,omitempty"`
	// Burst, if not 0, is the number of datagrams of Reply bytes that answer each message. Each begins
	// with the first 8 bytes of the message, which are its number, and with its own index in 4 bytes.
	Burst int `json:"burst,omitempty"`
	// Pipeline is the number of messages that a connection sends at once; it then waits for all
	// answers. 0 means 1.
	Pipeline int `json:"pipeline,omitempty"`
	// Churn opens a new connection for each message. Each connection ends with a reset, so that no
	// port stays in TIME_WAIT.
	Churn bool `json:"churn,omitempty"`
	// TLS makes the connections use TLS without checking certificates. It uses goroutines.
	TLS bool `json:"tls,omitempty"`
	// Network and Addr are those of the server. In a datagram network a message is sent again if it
	// has not come back after 100 ms.
	Network string `json:"network"`
	Addr    string `json:"addr"`
	// Connections is the number of connections. Size is the length of a message in bytes.
	Connections int `json:"connections"`
	Size        int `json:"size"`
	// Warm is the time of messages before the measured window. Measure is the length of the window.
	Warm    time.Duration `json:"warm_ns"`
	Measure time.Duration `json:"measure_ns"`
	// Count is the time of messages after the measured window in which the server's system calls
	// are counted, because counting would slow the server down. 0 counts none.
	Count time.Duration `json:"count_ns,omitempty"`
	// Epoll makes the generator use epoll even if it could use io_uring, which is cheaper.
	Epoll bool `json:"epoll,omitempty"`
	// Pid is the process of the server, whose CPU time is read at both ends of the window.
	Pid int `json:"pid"`
	// Turning is set if the server takes turns with others.
	Turning bool `json:"turning,omitempty"`

	turns measure.Turns
}

// TakeTurns makes the job measure in turns instead of one window of the length Measure.
func (j *Job) TakeTurns(t measure.Turns) {
	if j.Turning {
		j.turns = t
	}
}

// Check returns an error if the job is not valid.
func (j Job) Check() error {
	switch {
	case j.Connections < 1 || j.Connections > 1<<16:
		return fmt.Errorf("%d connections: must be 1 to %d", j.Connections, 1<<16)
	case !j.HTTP && (j.Size < 1 || j.Size > 1<<20):
		return fmt.Errorf("messages of %d bytes: must be 1 to %d", j.Size, 1<<20)
	case j.Reply < 0 || j.Reply > 1<<20:
		return fmt.Errorf("answers of %d bytes: must be up to %d", j.Reply, 1<<20)
	case j.Pipeline < 0 || j.Pipeline > 1<<10 || j.Pipeline*j.Size > 1<<20:
		return fmt.Errorf("%d messages at once: must be up to %d, and up to %d bytes", j.Pipeline, 1<<10, 1<<20)
	case j.Burst < 0 || j.Burst > maxBurst || j.Burst > 0 && (!j.datagrams() || j.Size < 8 || j.Reply < partHeader || j.Pipeline > 1):
		return fmt.Errorf("%d datagrams of %d bytes as an answer to %d: must be up to %d, of %d bytes or more, to 8 or more, one at a time",
			j.Burst, j.Reply, j.Size, maxBurst, partHeader)
	case j.datagrams() && max(j.Size, j.Reply) > maxDatagram:
		return fmt.Errorf("datagrams of %d bytes: must be up to %d", max(j.Size, j.Reply), maxDatagram)
	case j.Body < 0 || j.Body > 1<<20 || j.Body > 0 && !j.HTTP:
		return fmt.Errorf("bodies of %d bytes: must be up to %d, of HTTP requests", j.Body, 1<<20)
	case j.Measure <= 0 && !j.Turning:
		return fmt.Errorf("a window of %v: must be positive", j.Measure)
	}
	return nil
}

// An answer has up to maxBurst datagrams. Each begins with partHeader bytes: a number and an index.
const maxBurst, partHeader = 64, 12

// maxDatagram is the longest datagram of UDP on IPv4, without the two headers.
const maxDatagram = 65_535 - 20 - 8

// datagrams reports whether messages are datagrams.
func (j Job) datagrams() bool { return j.Network == "udp" }

// pattern fills a message and returns it.
func pattern(p []byte) []byte {
	for i := range p {
		p[i] = byte(i*7 + i>>8)
	}
	return p
}

// Result is the result of a measured window.
type Result struct {
	// Ops is the number of messages that came back. Elapsed is the length of the window.
	Ops int64 `json:"ops"`
	// Answer is the length of one HTTP answer.
	Answer  int64         `json:"answer,omitempty"`
	Elapsed time.Duration `json:"elapsed_ns"`
	// CPU is the CPU time of the server in the window.
	CPU time.Duration `json:"cpu_ns"`
	// P50, P99 and Max are latencies, from sending a message until all of the answer has arrived.
	P50 time.Duration `json:"p50_ns"`
	P99 time.Duration `json:"p99_ns"`
	Max time.Duration `json:"max_ns"`
	// Busy is the share of the window in which the generator's thread ran. Near 1 the generator
	// limits the rate.
	Busy float64 `json:"busy,omitempty"`
	// By is the mechanism that the generator used.
	By string `json:"by"`
	// Counted is the number of messages that came back while system calls were counted. Syscalls is
	// the number of system calls that the server made. If they cannot be counted, Counted is 0 and
	// Uncounted is the reason.
	Counted   int64  `json:"counted,omitempty"`
	Syscalls  int64  `json:"syscalls,omitempty"`
	Uncounted string `json:"uncounted,omitempty"`
}
