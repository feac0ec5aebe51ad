// SPDX-License-Identifier: MIT

package event

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
)

const (
	// handshakeTime is how long a handshake may take.
	handshakeTime = 10 * time.Second
	// handshakeBytes is how much is received at most before the handshake reads it.
	handshakeBytes = 256 << 10
	// recordBytes is the largest plaintext of a TLS record.
	recordBytes = 16 << 10
	// gatherBytes bounds the records that wait for each other, to be sent by one call.
	gatherBytes = 64 << 10
)

// secure is TLS on a connection of a loop: crypto/tls over a wire, to which the loop
// passes the received data. The handshake runs in a goroutine, which waits for data. After
// it the loop decrypts. A Read of a wire without data then returns a timeout error.
type secure struct {
	c      *Conn
	conn   *tls.Conn
	result chan error // for Enroll, of capacity 1

	mu      sync.Mutex // guards the fields that the handshake shares with the loop
	arrived *sync.Cond
	in      []byte // received, and not yet read by crypto/tls
	eof     bool   // the stream ends after in
	open    bool   // the handshake is over: reading does not wait
	broken  error  // the connection ends

	// The fields below belong to the loop.
	source  source // during a receive: crypto/tls reads from the socket
	opened  bool   // OnOpen was called
	ended   bool   // the peer has ended its direction
	waiting bool   // for reading to be resumed

	// The connection's mutex guards the fields below.
	alerted   bool // close_notify is sent
	inputFull bool // in has handshakeBytes
	writing   int  // calls of Write and WriteFunc that encrypt: the connection does not end meanwhile
	more      bool // OnData gets another record after this one: what it writes waits for that
	large     int  // calls of Write and WriteFunc with several records, of which each waits for the next
	gathered  bool // bytes wait
	own       int  // bytes that crypto/tls has written by itself since WriteLimit was reached

	calls sync.Mutex // held while OnPanic is called for the handshake, or OnHandshakeError
}

// source receives from the socket of a connection by plain calls, into memory of
// crypto/tls. Without data the error is errWouldBlock.
type source interface {
	receiveTLS(c *Conn, p []byte) (int, error)
	// more reports whether another record may follow the first passed bytes of plaintext.
	more(passed int) bool
}

// newSecure puts TLS on a connection.
func newSecure(c *Conn, config *tls.Config, client bool) *secure {
	s := &secure{c: c, result: make(chan error, 1)}
	s.arrived = sync.NewCond(&s.mu)
	if client {
		s.conn = tls.Client((*wire)(s), config)
	} else {
		s.conn = tls.Server((*wire)(s), config)
	}
	return s
}

// start begins the handshake.
func (s *secure) start() {
	s.c.server.background.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), handshakeTime)
		defer cancel()
		var err error
		if s.c.runApart(&s.calls, func() { err = s.conn.HandshakeContext(ctx) }) {
			s.c.back.do(s.c, func() { s.handshakeDone(err) })
		}
	})
}

// handshakeDone is called by the loop after the handshake.
func (s *secure) handshakeDone(err error) {
	c := s.c
	if err != nil {
		c.mu.Lock()
		if c.err == nil {
			c.err = err
		}
		c.state.closing = true // after the alert
		c.notifyAndUnlock()
		return
	}
	s.mu.Lock()
	s.open = true
	s.mu.Unlock()
	s.opened = true
	c.handshakeEnded(nil)
	c.resumeInput()
	c.callOnOpen()
	s.pump()
}

// resumeInput lets the loop receive again.
func (c *Conn) resumeInput() {
	c.mu.Lock()
	if !c.secure.inputFull {
		c.mu.Unlock()
		return
	}
	c.secure.inputFull = false
	c.notifyAndUnlock()
}

// data appends received data.
func (s *secure) data(p []byte) {
	s.mu.Lock()
	if !s.open {
		s.in = append(s.in, p...)
		inputFull := len(s.in) >= handshakeBytes
		s.mu.Unlock()
		s.arrived.Signal()
		if inputFull {
			s.c.mu.Lock()
			s.inputFull = true
			s.c.mu.Unlock()
		}
		return
	}
	if s.ended { // what follows close_notify is not read
		s.mu.Unlock()
		return
	}
	lent := len(s.in) == 0
	if lent {
		s.in = p
	} else {
		s.in = append(s.in, p...)
	}
	s.mu.Unlock()
	if !lent {
		s.pump()
		return
	}
	defer func() { // OnData may end the goroutine
		s.in = append([]byte(nil), s.in...)
	}()
	s.pump()
}

// end records the end of the received stream. It returns true: the connection continues
// until crypto/tls has read the end.
func (s *secure) end() bool {
	s.mu.Lock()
	s.eof = true
	open := s.open
	s.mu.Unlock()
	s.arrived.Signal()
	if open {
		s.pump()
	}
	return true
}

// fail ends the handshake with an error, if it is not over.
func (s *secure) fail(err error) {
	s.mu.Lock()
	s.broken = err
	s.mu.Unlock()
	s.arrived.Broadcast()
}

// pump decrypts data and passes them to the handler until no data are left or reading is
// stopped.
func (s *secure) pump() {
	c := s.c
	buf := plaintexts.Get().(*[]byte)
	defer plaintexts.Put(buf)
	p := *buf
	passed := 0
	for s.opened && !s.ended {
		c.mu.Lock()
		gone := c.state.closing || c.state.aborted
		s.waiting = !gone && (c.state.paused || c.blocked())
		c.mu.Unlock()
		if gone || s.waiting {
			return
		}
		n, err := 0, error(nil)
		c.run(func() { n, err = s.conn.Read(p) }) // functions of the configuration may panic
		if n > 0 {
			passed += n
			if more := err == nil && s.source != nil && s.source.more(passed); more != s.more {
				c.mu.Lock()
				s.more = more
				c.mu.Unlock()
			}
			c.callOnData(p[:n])
			sys.Poison(p[:n])
		}
		switch {
		case err == nil || n > 0 && !errors.Is(err, io.EOF):
		case errors.Is(err, errWouldBlock):
			return
		case errors.Is(err, io.EOF):
			s.ended = true
			if !c.callOnEOF() {
				c.mu.Lock()
				if !c.state.closing && c.err == nil {
					c.err = errEOF
				}
				c.state.closing = true
				c.notifyAndUnlock()
			}
			return
		default:
			c.mu.Lock()
			c.fail(c.opError("read", err))
			c.sendRest() // with the alert, unless the peer leaves no room for it
			c.notifyAndUnlock()
			return
		}
	}
}

// closeNotify sends close_notify when this direction is to end. The caller holds the
// connection's mutex, which closeNotify releases meanwhile.
func (s *secure) closeNotify() {
	st := &s.c.state
	if s.alerted || !s.opened || st.aborted || !st.closing && !st.finWrite {
		return
	}
	s.alerted, st.notified = true, true
	s.c.mu.Unlock()
	_ = s.conn.CloseWrite() // It fails when the connection is broken.
	s.c.mu.Lock()
	st.notified = false
}

// write encrypts p and then, if done is not nil, makes the loop call it. crypto/tls takes all
// of p or, after its end, nothing: wire.Write does not fail.
func (s *secure) write(p []byte, done func(error)) (int, error) {
	c := s.c
	c.mu.Lock()
	if err := c.writeError(); err != nil {
		c.mu.Unlock()
		return 0, err
	}
	s.writing++
	large := len(p) > recordBytes
	if large {
		s.large++
	}
	c.mu.Unlock()
	n, err := s.conn.Write(p)
	c.mu.Lock()
	s.writing--
	if large {
		if s.large--; s.large == 0 && !s.more {
			s.sendGathered()
		}
	}
	ends := c.ends()
	if err == nil && done != nil {
		c.out.lend(nil, done, false)
	}
	if ends || done != nil {
		c.notifyAndUnlock()
	} else {
		c.mu.Unlock()
	}
	switch {
	case err == nil:
		return n, nil
	case ends: // meanwhile
		err = net.ErrClosed
	}
	return n, c.opError("write", err)
}

// sendGathered sends the bytes that wait. The caller holds the connection's mutex.
func (s *secure) sendGathered() {
	if s.gathered {
		s.gathered = false
		s.c.sendRest()
	}
}

// plaintexts holds buffers for decrypted data.
var plaintexts = sync.Pool{New: func() any { p := make([]byte, recordBytes); return &p }}

// withServerName returns the configuration for a client, which checks the name of the
// host that it dials, as tls.Dial's does.
func withServerName(config *tls.Config, address string) *tls.Config {
	if config.ServerName != "" || config.InsecureSkipVerify {
		return config
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	config = config.Clone()
	config.ServerName = host
	return config
}

// wire is the net.Conn below crypto/tls.
type wire secure

// Read implements net.Conn.
func (w *wire) Read(p []byte) (int, error) {
	if w.source != nil && len(w.in) == 0 {
		return w.source.receiveTLS(w.c, p)
	}
	w.mu.Lock()
	for len(w.in) == 0 && !w.eof && !w.open && w.broken == nil {
		w.arrived.Wait()
	}
	n := copy(p, w.in)
	w.in = w.in[n:]
	left, eof, open, broken := len(w.in), w.eof, w.open, w.broken
	w.mu.Unlock()
	switch {
	case n > 0:
		if left == 0 && !open {
			w.c.resumeInput()
		}
		return n, nil
	case broken != nil:
		return 0, broken
	case eof:
		return 0, io.EOF
	}
	return 0, errWouldBlock
}

// Write implements net.Conn: it accepts all of p, however much is pending. After the end of
// the connection p is dropped, as the rest of a Write that was accepted before.
func (w *wire) Write(p []byte) (int, error) {
	c := w.c
	c.mu.Lock()
	if c.state.aborted || c.state.closed || c.state.finSent {
		c.mu.Unlock()
		return len(p), nil
	}
	waits := (w.more || w.large > 0) && c.out.n+len(p) < min(gatherBytes, c.server.opts.WriteLimit)
	if w.gathered = w.gathered || waits; w.gathered {
		c.out.add(p)
	} else {
		c.out.add(p[c.sendNow(p):])
	}
	if !waits {
		(*secure)(w).sendGathered()
	}
	c.noteFull()
	if c.state.full && w.writing == 0 {
		w.own += len(p)
	}
	c.notifyAndUnlock()
	return len(p), nil
}

// Close implements net.Conn. crypto/tls calls it when a handshake has taken too long.
func (w *wire) Close() error {
	(*secure)(w).fail(net.ErrClosed)
	return nil
}

func (w *wire) LocalAddr() net.Addr              { return w.c.LocalAddr() }
func (w *wire) RemoteAddr() net.Addr             { return w.c.RemoteAddr() }
func (w *wire) SetDeadline(time.Time) error      { return nil }
func (w *wire) SetReadDeadline(time.Time) error  { return nil }
func (w *wire) SetWriteDeadline(time.Time) error { return nil }

// errWouldBlock is the error of a Read when no data have arrived. crypto/tls treats it as
// an exceeded deadline, and continues with the next call.
var errWouldBlock net.Error = wouldBlock{}

type wouldBlock struct{}

func (wouldBlock) Error() string   { return "event: nothing has arrived" }
func (wouldBlock) Timeout() bool   { return true }
func (wouldBlock) Temporary() bool { return true }

// TLSState returns the state of TLS after the handshake (version, cipher suite,
// certificates), nil without TLS. During a handshake it blocks.
func (c *Conn) TLSState() *tls.ConnectionState {
	var conn *tls.Conn
	if c.secure != nil {
		conn = c.secure.conn
	} else if c.overTLS() {
		conn = c.bstate.net.conn.(*tls.Conn)
	} else {
		return nil
	}
	s := conn.ConnectionState()
	return &s
}
