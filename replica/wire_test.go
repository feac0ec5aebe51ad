// SPDX-License-Identifier: MIT

package replica

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// mute accepts connections and does not answer, as a process that is stopped.
func mute(t *testing.T) (address string, accepted <-chan struct{}) {
	l, err := net.Listen("tcp", freeAddress(t))
	must(t, err)
	first := make(chan struct{})
	var once sync.Once
	var all []net.Conn
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all = append(all, c)
			once.Do(func() { close(first) })
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-over
		for _, c := range all {
			c.Close()
		}
	})
	return l.Addr().String(), first
}

// TestMemberDoesNotAnswer: a context without a deadline that is canceled ends the wait for a member, and
// so does Close.
// Promise: replica/call-returns-context
func TestMemberDoesNotAnswer(t *testing.T) {
	t.Parallel()
	address, _ := mute(t)
	other, accepted := mute(t)
	own := freeAddress(t)
	n, err := Open(Options{ID: "a", Dir: t.TempDir(), Listen: own, Peers: map[string]string{"a": own, "b": address},
		Election: 200 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, _, err := n.wire.meet(ctx, peer{address: other}, kindForward)
		done <- err
	}()
	<-accepted
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Error("the context was canceled, and the connection is still waited for")
	}
	until(t, "the node asks for a vote", func() bool { return n.raft.State() == raft.Candidate })
	go func() { done <- n.Close() }()
	select {
	case err := <-done:
		must(t, err)
	case <-time.After(5 * time.Second):
		t.Error("Close waits for a member that does not answer")
		must(t, <-done)
	}
}

// failing is a listener whose first call fails because the process has too many open files.
type failing struct {
	net.Listener
	calls int
}

func (l *failing) Accept() (net.Conn, error) {
	if l.calls++; l.calls == 1 {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return nil, net.ErrClosed
}

// TestAcceptAgain: a node that could not accept a connection accepts the next one.
func TestAcceptAgain(t *testing.T) {
	l := new(failing)
	w := &wire{node: &Node{log: slog.New(slog.DiscardHandler), life: life{closing: t.Context()}}, listener: l}
	w.serve()
	if l.calls != 2 {
		t.Errorf("%d calls of Accept", l.calls)
	}
}

// measured notes the size of the largest request for several entries.
type measured struct {
	network
	most *atomic.Int64
}

func (n measured) note(args *raft.AppendEntriesRequest) {
	size := int64(0)
	for _, e := range args.Entries {
		size += int64(len(e.Data))
	}
	for old := n.most.Load(); len(args.Entries) > 1 && size > old && !n.most.CompareAndSwap(old, size); old = n.most.Load() {
	}
}

func (n measured) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	n.note(args)
	return n.network.AppendEntries(id, target, args, resp)
}

func (n measured) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	p, err := n.network.AppendEntriesPipeline(id, target)
	return measuredPipeline{p, n}, err
}

type measuredPipeline struct {
	raft.AppendPipeline
	n measured
}

func (p measuredPipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	p.n.note(args)
	return p.AppendPipeline.AppendEntries(args, resp)
}
