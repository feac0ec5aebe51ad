// SPDX-License-Identifier: MIT

package faultsweep

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/uring"
)

// echoer echoes the data of a connection through a ring of package uring, with bugs that
// have no effect on a real, fast kernel.
type echoer struct {
	givesBackEarly bool // reads a provided buffer after recycling it
	reusesEarly    bool // writes into memory that is being sent
	leaves         bool // closes with a receive in flight
}

const echoed = "0123456789abcdefghijklmn"

func (b *echoer) run(t *Trial) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer syscall.Close(fds[0])
	defer syscall.Close(fds[1])
	if _, err := syscall.Write(fds[1], []byte(echoed)); err != nil {
		t.Fatalf("%v", err)
	}
	t.Arm()
	defer t.Disarm()
	e := &echo{t: t, bug: b, fd: fds[0]}
	if !t.Judge("open", e.open()) {
		return
	}
	defer e.r.Close()
	if !t.Judge("echo", e.serve()) {
		return
	}
	got := make([]byte, 2*len(echoed))
	n, _ := syscall.Read(fds[1], got)
	if string(got[:max(n, 0)]) != echoed {
		t.Errorf("%q came back", got[:max(n, 0)])
	}
}

// echo is one ring of an echoer.
type echo struct {
	t    *Trial
	bug  *echoer
	fd   int
	r    *uring.Ring
	bufs *uring.BufRing

	receiving  bool
	sending    bool
	sent       int
	out, spare []byte
}

const (
	udReceive = iota + 1
	udSend
	udCancel
	udNothing
)

func (e *echo) open() (err error) {
	if e.r, err = uring.Open(uring.Options{Entries: 8, SubmitAll: true}); err != nil {
		return err
	}
	if e.bufs, err = e.r.NewBufRing(uring.BufRingOptions{Entries: 4, BufferSize: 8}); err != nil {
		return errors.Join(err, e.r.Close())
	}
	return nil
}

// serve runs until all data is sent, and then ends its operations.
func (e *echo) serve() error {
	defer func() {
		for (e.receiving || e.sending) && !e.bug.leaves {
			if entry := e.r.SQE(); entry != nil {
				entry.Cancel(udReceive).SetUserData(udCancel)
			}
			_ = e.turn()
		}
	}()
	for e.sent < len(echoed) {
		if !e.receiving {
			e.receiving = true
			e.r.SQE().RecvMultishot(uring.Fd(e.fd), 0, 0).SetUserData(udReceive)
		}
		if err := e.turn(); err != nil {
			return err
		}
	}
	return nil
}

// turn enters the ring once and processes the completions.
func (e *echo) turn() (failed error) {
	_, err := e.r.SubmitAndWait(1)
	if err != nil && !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EBUSY) && !errors.Is(err, syscall.ENOMEM) {
		return err
	}
	var cqes [8]uring.CQE
	for _, c := range cqes[:e.r.Reap(cqes[:])] {
		errno := c.Errno()
		switch c.UserData {
		case udReceive:
			e.receiving = c.Has(uring.CQEMore)
		case udSend:
			e.sending = false
		}
		switch {
		case c.UserData == udCancel:
		case errno != 0 && errno != syscall.ECANCELED && errno != syscall.EINTR && errno != syscall.EAGAIN && errno != syscall.ENOBUFS:
			failed = errno
		case c.UserData == udReceive:
			e.received(c)
		case errno == 0:
			e.out = e.out[c.Res:]
			e.sent += int(c.Res)
			e.send()
		default:
			e.send()
		}
	}
	return failed
}

// received processes received data.
func (e *echo) received(c uring.CQE) {
	data, ok := e.bufs.Take(c)
	if !ok {
		return
	}
	if e.bug.givesBackEarly {
		e.bufs.Recycle(c.BufferID())
		e.bufs.Publish()
		e.r.SQE().Cancel(udNothing).SetUserData(udCancel)
		_, _ = e.r.Submit() // runs other code first
	}
	idle := len(e.out) == 0 && len(e.spare) == 0
	e.spare = append(e.spare, unseen(data)...)
	if !e.bug.givesBackEarly {
		e.bufs.Recycle(c.BufferID())
		e.bufs.Publish()
	}
	if idle {
		e.send()
	}
}

// unseen returns a copy of p, and wipe clears p, where the race detector does not see
// it, which would end the test before anything else has been noticed.
//
//go:norace
func unseen(p []byte) []byte {
	q := make([]byte, len(p))
	for i := len(p) - 1; i >= 0; i-- {
		q[i] = p[i]
	}
	return q
}

//go:norace
func wipe(p []byte) {
	for i := range p {
		p[i] = 0
	}
}

// send sends the rest of the data or, without a rest, the data received meanwhile.
func (e *echo) send() {
	if len(e.out) == 0 {
		e.out, e.spare = e.spare, nil
	}
	if len(e.out) == 0 {
		return
	}
	e.sending = true
	e.r.SQE().Send(uring.Fd(e.fd), e.out, syscall.MSG_NOSIGNAL).SetUserData(udSend)
	if e.bug.reusesEarly {
		_, _ = e.r.Submit() // which usually sends it
		old := e.out
		e.out = unseen(old)
		wipe(old)
	}
}

// TestSeededBugsAtSyscalls seeds one bug at a time above simulated rings. On the kernel's
// own rings these bugs show only if the kernel is slow, or never.
// Promise: tests/freed-buffer-found
func TestSeededBugsAtSyscalls(t *testing.T) {
	if testing.Short() {
		t.Skip("checks the sweep, not the product: not with -short")
	}
	Need(t)
	// A program cannot end operations in flight on a failed ring.
	passing := map[string][]Choice{"io_uring_enter": append(Passes(syscall.EINTR, syscall.EAGAIN), short)}
	for _, c := range []struct {
		name  string
		bug   echoer
		want  string
		quiet bool // the kernel's rings certainly show nothing
	}{
		{"none", echoer{}, "", true},
		{"a provided buffer that is read after it was given back", echoer{givesBackEarly: true}, "came back", true},
		{"memory that is used again before its completion", echoer{reusesEarly: true}, "has changed before its completion", false},
		{"buffers that are gone under a receive", echoer{leaves: true}, "is unregistered while RECV", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, atSyscalls := range []bool{false, true} {
				if !atSyscalls && !c.quiet {
					continue
				}
				want := ""
				if atSyscalls {
					want = c.want
				}
				op := Operation{Name: "echo", Run: c.bug.run, Opened: true, Most: 1, Instead: passing, atSyscalls: atSyscalls}
				r := Sweep([]Operation{op}, Options{Patience: Patience})
				found := strings.Join(r.Problems, "\n")
				if want == "" && found != "" || !strings.Contains(found, want) {
					t.Errorf("at the system calls %v: found %q, want %q, in %v\n%s", atSyscalls, found, want, r, strings.Join(r.Lines, "\n"))
				}
				if want == "" && r.Faults == 0 {
					t.Error("the sweep found no bug")
				}
			}
		})
	}
}
