// SPDX-License-Identifier: MIT

package replica

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/ringside-io/ringside/unet"
)

// wire connects the nodes: raft's messages, requests, and files each have their own
// connections to one listener.
type wire struct {
	before    map[string]string // the members' addresses when the node was opened, see Options.Addresses
	failures  failures
	node      *Node
	listener  net.Listener
	address   string
	accepted  chan net.Conn // for raft
	transport *raft.NetworkTransport
	over      sync.WaitGroup
	once      sync.Once

	met   sync.Map // the latest meeting by address
	calls sync.Map // the member's ID by raft's connection to it

	mu    sync.Mutex
	conns map[net.Conn]struct{} // that this node serves, raft's, and those for its own requests; nil after cut
	idle  map[idleKey][]memberConn
}

// idleKey finds an idle connection by peer and kind.
type idleKey struct {
	peer
	kind string
}

var _ raft.StreamLayer = layer{}

// wireAddr is an address in the form of the configuration.
type wireAddr string

func (wireAddr) Network() string  { return "tcp" }
func (a wireAddr) String() string { return string(a) }

func listen(n *Node) (*wire, error) {
	l, err := unet.Listen("tcp", n.opts.Listen)
	if err != nil {
		return nil, fmt.Errorf("replica: Options.Listen: %w", err)
	}
	w := &wire{node: n, listener: l, address: cmp.Or(n.opts.Advertise, n.opts.Addresses[n.opts.ID]), accepted: make(chan net.Conn),
		conns: make(map[net.Conn]struct{}), idle: make(map[idleKey][]memberConn)}
	if w.address == "" {
		w.address = n.opts.Peers[n.opts.ID]
	}
	if w.address == "" {
		w.address = l.Addr().String()
	}
	if n.opts.TLS == nil && !n.opts.PlainText {
		if host, _, err := net.SplitHostPort(l.Addr().String()); err != nil || !net.ParseIP(host).IsLoopback() {
			return nil, errors.Join(fmt.Errorf("replica: %s is no loopback address, and nodes would talk in plain text: set Options.TLS, or Options.PlainText to allow that", l.Addr()), l.Close())
		}
	}
	if c := n.opts.TLS; c != nil && c.ClientAuth != tls.RequireAndVerifyClientCert {
		return nil, errors.Join(errors.New("replica: Options.TLS does not verify the other nodes: set ClientAuth to tls.RequireAndVerifyClientCert"), l.Close())
	}
	w.over.Go(w.serve)
	return w, nil
}

// The kinds of connections.
const (
	kindRaft    = "raft"
	kindRequest = "request"
	kindFetch   = "fetch"
	kindForward = "forward"
	kindTerm    = "term"
)

func send(w io.Writer, v any) error {
	p, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(p))), p...))
	return err
}

func receive(r io.Reader, v any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n > 16<<20 {
		return fmt.Errorf("replica: a message of %d bytes, more than any of this protocol: the peer is no node of this version", n)
	}
	p := make([]byte, n)
	if _, err := io.ReadFull(r, p); err != nil {
		return err
	}
	return json.Unmarshal(p, v)
}

// helloTimeout is how long a new connection may take to send its hello.
const helloTimeout = 5 * time.Second

// serve accepts connections. An error may pass, for example if the process has too many open files.
func (w *wire) serve() {
	wait := time.Duration(0)
	for {
		c, err := w.listener.Accept()
		if err == nil {
			wait = 0
			w.over.Go(func() { w.welcome(c) })
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if wait == 0 {
			w.node.log.Error("replica: no connection can be accepted for now", "error", err)
		}
		wait = min(max(2*wait, 5*time.Millisecond), time.Second)
		select {
		case <-time.After(wait):
		case <-w.node.life.closing.Done():
			return
		}
	}
}

func (w *wire) track(c net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conns == nil {
		return false
	}
	w.conns[c] = struct{}{}
	return true
}

func (w *wire) drop(c net.Conn) {
	w.mu.Lock()
	delete(w.conns, c)
	w.mu.Unlock()
	w.calls.Delete(c)
	_ = c.Close()
}

// Accept gives raft a connection.
func (w *wire) Accept() (net.Conn, error) {
	select {
	case c := <-w.accepted:
		return &tracked{c, w}, nil
	case <-w.node.life.closing.Done():
		return nil, net.ErrClosed
	}
}

type tracked struct {
	net.Conn
	w *wire
}

func (c *tracked) Close() error {
	c.w.drop(c.Conn)
	return nil
}

// Addr returns the address by which other nodes reach this one.
func (w *wire) Addr() net.Addr { return wireAddr(w.address) }

// Dial gives raft a connection to a member.
func (w *wire) Dial(target raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(w.node.life.closing, timeout)
	defer cancel()
	id, address, _ := strings.Cut(string(target), "\x00")
	c, err := w.dial(ctx, peer{id, address}, kindRaft)
	if err != nil {
		return nil, err
	}
	if !w.track(c) {
		return nil, errors.Join(net.ErrClosed, c.Close())
	}
	w.calls.Store(c, id)
	return &tracked{c, w}, nil
}

// cutPeer closes raft's connections to a member.
func (w *wire) cutPeer(id string) {
	w.calls.Range(func(c, to any) bool {
		if to == id {
			w.drop(c.(net.Conn))
		}
		return true
	})
}

func (w *wire) dial(ctx context.Context, p peer, kind string) (net.Conn, error) {
	w.node.membership.mu.RLock()
	config := w.node.membership.dirs.Config
	w.node.membership.mu.RUnlock()
	c, answer, err := w.meet(ctx, p, kind)
	if err == nil {
		w.met.Store(p.address, meeting{answer, config})
		if kind == kindRaft {
			w.node.membership.look()
		}
	}
	return c, err
}

// memberConn is a connection for requests, one at a time. The process at its other end keeps its ID
// and its directory.
type memberConn struct {
	net.Conn
	id        raft.ServerID
	directory uint64
}

// ask sends a request and receives its answer.
func (c memberConn) ask(r request, a *answer) error {
	if err := send(c, r); err != nil {
		return err
	}
	return receive(c, a)
}

// progress asks a member for the index of the last entry that it has stored and applied.
func (w *wire) progress(ctx context.Context, m raft.Server) (index uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	stop := context.AfterFunc(w.node.life.closing, cancel)
	defer stop()
	var a answer
	err = w.request(ctx, w.node.wire.peerOf(m), kindRequest, func(c memberConn) error {
		if err := c.ask(request{Kind: askApplied}, &a); err != nil {
			return err
		}
		return w.is(c, m.ID, m.Address)
	})
	return a.Index, err
}

// request runs f with a connection to a member that no other request uses, until ctx is done. It runs f
// again with another connection if the member has closed an unused one, for example because it was
// started again.
func (w *wire) request(ctx context.Context, p peer, kind string, f func(memberConn) error) error {
	for {
		c, used, err := w.unused(ctx, idleKey{p, kind})
		if err != nil {
			return err
		}
		if err = within(ctx, c, func() error { return f(c) }); err == nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.idle != nil {
				key := idleKey{p, kind}
				w.idle[key] = append(w.idle[key], c)
			}
			return nil
		}
		w.drop(c.Conn)
		if !used || ctx.Err() != nil {
			return err
		}
	}
}

// within runs f, whose calls of a connection fail when ctx is done.
func within(ctx context.Context, c net.Conn, f func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	err := f()
	if !stop() { // the connection cannot be used any more
		return errors.Join(err, context.Cause(ctx))
	}
	return err
}

// unused returns a connection that is not in use, and whether it was used before.
func (w *wire) unused(ctx context.Context, key idleKey) (c memberConn, used bool, err error) {
	w.mu.Lock()
	if list := w.idle[key]; len(list) > 0 {
		c, w.idle[key] = list[len(list)-1], list[:len(list)-1]
		w.mu.Unlock()
		return c, true, nil
	}
	w.mu.Unlock()
	raw, answer, err := w.meet(ctx, key.peer, key.kind)
	if err != nil {
		return c, false, err
	}
	if !w.track(raw) {
		return c, false, errors.Join(net.ErrClosed, raw.Close())
	}
	return memberConn{raw, raft.ServerID(answer.ID), answer.Directory}, false, nil
}

// cut closes all connections, and refuses later ones.
func (w *wire) cut() {
	w.mu.Lock()
	conns := w.conns
	w.conns, w.idle = nil, nil
	w.mu.Unlock()
	for c := range conns {
		_ = c.Close()
	}
}

// Close ends all connections.
func (w *wire) Close() error {
	var err error
	w.once.Do(func() {
		err = w.listener.Close()
		if w.transport != nil {
			_ = w.transport.Close()
		}
		w.cut()
		w.over.Wait()
	})
	return err
}

// askTimeout is how long a request without a deadline may take.
const askTimeout = 10 * time.Second

func (w *wire) ask(ctx context.Context, p peer, r request) (a answer, err error) {
	ctx, cancel := w.bound(ctx, askTimeout)
	defer cancel()
	err = w.request(ctx, p, kindRequest, func(c memberConn) error {
		return c.ask(r, &a)
	})
	if err == nil && a.Error != "" {
		err = fmt.Errorf("replica: %s answered: %s", p.address, a.Error)
	}
	return a, err
}

// bound returns a context that also ends when the node is closed. If ctx has no deadline, it ends
// after a time.
func (w *wire) bound(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	var cancel context.CancelFunc
	if _, ok := ctx.Deadline(); ok {
		ctx, cancel = context.WithCancel(ctx)
	} else {
		ctx, cancel = context.WithTimeout(ctx, most)
	}
	stop := context.AfterFunc(w.node.life.closing, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// meet connects to a member and returns its answer to the hello. Both sides refuse a node with another ID,
// another cluster, or another directory than the recorded one. A process that is stopped accepts
// connections and does not answer, so meet waits no longer than askTimeout without a deadline of ctx.
func (w *wire) meet(ctx context.Context, p peer, kind string) (net.Conn, welcome, error) {
	var answer welcome
	ctx, cancel := w.bound(ctx, askTimeout)
	defer cancel()
	var d unet.Dialer
	c, err := d.DialContext(ctx, "tcp", p.address)
	if err != nil {
		return nil, answer, err
	}
	if o := w.node.opts.TLS; o != nil {
		o = o.Clone()
		if o.ServerName == "" {
			o.ServerName, _, _ = net.SplitHostPort(p.address)
		}
		c = tls.Client(c, o)
	}
	err = within(ctx, c, func() error {
		if err := send(c, w.hello(p, kind)); err != nil {
			return err
		}
		return receive(c, &answer)
	})
	if err == nil && answer.Error != "" {
		err = fmt.Errorf("replica: %s refused the connection: %s", p.address, answer.Error)
	}
	if err == nil {
		err = w.expected(p, &answer)
	}
	if err == nil {
		err = certified(c, answer.ID)
	}
	if err != nil {
		return nil, answer, errors.Join(err, c.Close())
	}
	return c, answer, nil
}

// Address returns the address by which other nodes reach this one.
func (n *Node) Address() string { return n.wire.address }

// ID returns the node's name.
func (n *Node) ID() string { return n.opts.ID }
