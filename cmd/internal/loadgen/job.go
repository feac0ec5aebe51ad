// SPDX-License-Identifier: MIT

// Package loadgen drives an echo server over many connections from one thread.
// It is written to cost little, because it runs on the machine whose server is
// measured: the server does not get the time that it uses, and a server that could do
// more waits for it. So it uses io_uring, where it can, to receive and send for
// many connections in one call, and epoll elsewhere; no goroutine per
// connection, no allocation while it measures. It belongs into a process of its
// own.
package loadgen

import (
	"fmt"
	"time"
)

// Job describes a load: each connection sends a message, waits until
// all of it has come back, compares it, and sends the next.
type Job struct {
	// HTTP makes a message a request of HTTP/1.1 for "/" and its answer whatever the server answers
	// the first one, always the same but for its date. Size is not used then.
	HTTP bool `json:"http,omitempty"`
	// Path is asked for in the place of "/".
	Path string `json:"path,omitempty"`
	// Discard compares only the beginning of each answer with that of the first one and lets the kernel
	// throw the rest away, for answers that are long: else the generator would be measured. It uses
	// epoll.
	Discard bool `json:"discard,omitempty"`
	// Reply is the length of the answer to each message, if it is not an echo: bytes i*7 + i/256.
	Reply int `json:"reply,omitempty"`
	// Pipeline is how many messages a connection sends at once; it waits for all answers. 0 is 1.
	Pipeline int `json:"pipeline,omitempty"`
	// Churn opens a new connection for each message. Each ends by a reset, which leaves no port
	// waiting.
	Churn bool `json:"churn,omitempty"`
	// TLS makes the connections speak TLS, whose certificates are not checked. It uses goroutines.
	TLS bool `json:"tls,omitempty"`
	// Network and Addr are those of the server. In a datagram network a message that has not come back
	// after 100 ms is sent again.
	Network string `json:"network"`
	Addr    string `json:"addr"`
	// Connections is how many there are, Size the length of a message in bytes.
	Connections int `json:"connections"`
	Size        int `json:"size"`
	// Warm is how long messages go before the measured window, Measure how long
	// in it.
	Warm    time.Duration `json:"warm_ns"`
	Measure time.Duration `json:"measure_ns"`
	// Count is how long messages go after the measured window to count the system calls of the
	// server, which would slow it down in that window; 0 counts none.
	Count time.Duration `json:"count_ns,omitempty"`
	// Epoll makes the generator use epoll although it could use io_uring, which costs less.
	Epoll bool `json:"epoll,omitempty"`
	// Pid is the process of the server, whose CPU time is read at both ends of
	// the window.
	Pid int `json:"pid"`
	// Others are further processes of the server, which count as well.
	Others []int `json:"others,omitempty"`
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
	case j.Measure <= 0:
		return fmt.Errorf("a window of %v: must be positive", j.Measure)
	}
	return nil
}

// datagrams reports whether messages are datagrams.
func (j Job) datagrams() bool { return j.Network == "udp" }

// pattern fills a message.
func pattern(p []byte) []byte {
	for i := range p {
		p[i] = byte(i*7 + i>>8)
	}
	return p
}

// Result is the result of a measured window.
type Result struct {
	// Ops is the number of messages that came back, Elapsed the length of the
	// window.
	Ops int64 `json:"ops"`
	// Received is the number of bytes that came in the window, Answer the length of one answer in HTTP.
	Received int64         `json:"received"`
	Answer   int64         `json:"answer,omitempty"`
	Elapsed  time.Duration `json:"elapsed_ns"`
	// CPU is the processor time that the server used in the window.
	CPU time.Duration `json:"cpu_ns"`
	// P50, P99 and Max are of the times from sending to having all back.
	P50 time.Duration `json:"p50_ns"`
	P99 time.Duration `json:"p99_ns"`
	Max time.Duration `json:"max_ns"`
	// Busy is the share of the window in which the generator's thread ran: near 1 it bounds the rate.
	Busy float64 `json:"busy,omitempty"`
	// By is the mechanism that the generator used.
	By string `json:"by"`
	// Counted is the number of messages that came back while system calls were counted, Syscalls
	// how many the server made; where they cannot be, Counted is 0 and Uncounted says why.
	Counted   int64  `json:"counted,omitempty"`
	Syscalls  int64  `json:"syscalls,omitempty"`
	Uncounted string `json:"uncounted,omitempty"`
}
