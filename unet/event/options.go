// SPDX-License-Identifier: MIT

package event

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"runtime"

	"github.com/ringside-io/ringside/features"
)

// Mode selects the backend: ModeAuto, ModeRing, ModeEpoll or ModeNet.
type Mode = features.Mode

const (
	// ModeAuto uses the backend that RINGSIDE_BACKEND names. Without that variable it
	// uses io_uring where it can be used, epoll elsewhere on Linux, and goroutines on
	// package net on other systems. [Server.Backend] returns the choice and its reason.
	ModeAuto = features.ModeAuto
	// ModeRing requires io_uring: [Listen] fails where it cannot be used.
	ModeRing = features.ModeRing
	// ModeEpoll requires epoll, through loops of package watch: [Listen] fails with
	// errors.ErrUnsupported on systems other than Linux.
	ModeEpoll = features.ModeEpoll
	// ModeNet uses goroutines on package net.
	ModeNet = features.ModeNet
)

// wait is how a loop with a ring waits for the kernel.
type wait int

const (
	// waitAuto is waitThread where Linux has deferred task work (6.1) and GOMAXPROCS is larger
	// than the number of loops, otherwise waitNetpoller. Only tests choose another.
	waitAuto wait = iota
	// waitThread gives each loop its own thread, on which it waits in the kernel. The
	// kernel defers its work for the ring until then. This takes the least CPU time and
	// treats connections most evenly. But goroutines that callbacks start or wake would be
	// up to 10 ms late if GOMAXPROCS were not larger than the number of loops.
	waitThread
	// waitNetpoller makes each loop wait in Go's netpoller. A waiting loop is a goroutine
	// and occupies no thread.
	waitNetpoller
)

// Options configure a server. The zero value is a good default.
type Options struct {
	// Mode chooses the backend.
	Mode Mode
	// Loops is the number of event loops. Each has a ring or an epoll instance. For TCP
	// each also has a separate listening socket (SO_REUSEPORT). 0 means half of
	// GOMAXPROCS, at least 1, and all of it if TLS is set, because encrypting takes most of
	// the time. With more than one, other processes of the same user can bind the same
	// address.
	Loops int
	// WriteLimit bounds the pending bytes of a connection: if that many or more are
	// pending, [Conn.Write] returns [ErrFull]. 0 means 64 KiB. A single Write may exceed
	// it. At the limit nothing is read from the connection until at most half of it is
	// pending, unless [Conn.SetFullDuplex] is set. So a handler that makes one Write for
	// each OnData never gets ErrFull, and nothing is read from a peer that does not read.
	WriteLimit int
	// BufferSize is the size of a receive buffer in bytes, and so the largest length of
	// OnData's slice. 0 means buffers of 4 KiB. With 0 the slice is longer for a peer that
	// sends more at once: up to 1 MiB, or up to WriteLimit while responses are pending. Such
	// a piece is in memory of the loop. Buffers is the number of receive buffers of each loop,
	// a power of two up to 32768. 0 means 1024: 4 MiB of memory for each loop, which a small
	// container may want to reduce. The connections of a loop share its buffers, and an idle
	// connection holds none. If all buffers are in use, the loop receives later, and no data
	// is lost.
	BufferSize, Buffers int
	// TurnBytes bounds how many bytes of one connection the loop passes to OnData, by one
	// call or several, before it turns to its other connections. One piece may exceed it
	// by up to BufferSize. Further data waits. 0 means 2 MiB. With a small value, peers
	// that send much delay other connections less, but their own rate is lower. It has no
	// effect with ModeNet.
	TurnBytes int
	// Restrict limits the rings to the operations of a server: ACCEPT, RECV, RECVMSG,
	// SEND, ASYNC_CANCEL and POLL_ADD. The kernel refuses all others with EACCES. It has no
	// effect on other backends.
	Restrict bool
	// Logger, if it is set, receives the chosen backend at INFO. A loop that fails is
	// reported at ERROR, to slog.Default() if Logger is nil.
	Logger *slog.Logger
	// Trace makes each turn of a loop a region "event.turn" of package runtime/trace. It
	// gives the goroutines of the server the labels ringside=event and loop=NUMBER of
	// package runtime/pprof, so that profiles can distinguish them. Goroutines that
	// callbacks start inherit the labels.
	Trace bool
	// ListenConfig configures the listening sockets (keep-alive, Control). nil means
	// package net's defaults.
	ListenConfig *net.ListenConfig
	// TLS, if it is set, puts crypto/tls on the connections that the server accepts.
	// Handshakes run in goroutines, for 10 seconds at most, and OnOpen is called after
	// the handshake. The loops decrypt, and Write encrypts. OnEOF is called after the peer's
	// close_notify. As with crypto/tls, it is also called if the stream ends between two
	// records without close_notify. Close and CloseWrite send close_notify.
	TLS *tls.Config

	wait    wait
	largest int // length of a piece that OnData receives
}

func (o *Options) logger() *slog.Logger {
	if o.Logger != nil {
		return o.Logger
	}
	return slog.Default()
}

const (
	maxLoops   = 1024
	maxBufSize = 1 << 20
	maxBuffers = 1 << 15
	// bulkPiece is how much a busy connection receives at once if BufferSize is 0.
	bulkPiece = 1 << 20
)

// filled returns the options with all defaults, or an error that names the
// first invalid field.
func (o Options) filled() (Options, error) {
	f := o
	if f.Loops == 0 {
		f.Loops = max(runtime.GOMAXPROCS(0)/2, 1)
		if f.TLS != nil {
			f.Loops = runtime.GOMAXPROCS(0)
		}
	}
	if f.WriteLimit == 0 {
		f.WriteLimit = 64 << 10
	}
	f.largest = f.BufferSize
	if f.BufferSize == 0 {
		f.BufferSize, f.largest = 4<<10, bulkPiece
	}
	if f.TurnBytes == 0 {
		f.TurnBytes = 2 << 20
	}
	if f.Buffers == 0 {
		f.Buffers = 1024
	}
	return f, f.check()
}

func (o *Options) check() error {
	switch o.Mode {
	case ModeAuto, ModeRing, ModeEpoll, ModeNet:
	default:
		return fmt.Errorf("event: unknown mode %v: want auto, io_uring, epoll or net", o.Mode)
	}
	switch {
	case o.Loops < 0 || o.Loops > maxLoops:
		return fmt.Errorf("event: Options.Loops: %d is not between 0 and %d", o.Loops, maxLoops)
	case o.WriteLimit < 0:
		return fmt.Errorf("event: Options.WriteLimit: %d is negative", o.WriteLimit)
	case o.BufferSize < 0 || o.BufferSize > maxBufSize:
		return fmt.Errorf("event: Options.BufferSize: %d is not between 0 and %d", o.BufferSize, maxBufSize)
	case o.Buffers < 0 || o.Buffers > maxBuffers || o.Buffers&(o.Buffers-1) != 0:
		return fmt.Errorf("event: Options.Buffers: %d is neither 0 nor a power of two up to %d", o.Buffers, maxBuffers)
	case o.TurnBytes < 0:
		return fmt.Errorf("event: Options.TurnBytes: %d is negative", o.TurnBytes)
	}
	return nil
}
