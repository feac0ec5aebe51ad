// SPDX-License-Identifier: MIT

package uring_test

import (
	"net"
	"sync/atomic"
	"testing"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/busytest"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

// TestRawSubmitsKeepTheNetwork has a goroutine use a ring by raw calls only.
func TestRawSubmitsKeepTheNetwork(t *testing.T) {
	ringtest.NeedRing(t)
	for _, test := range []struct {
		name  string
		enter func(*uring.Ring) (int, error)
	}{
		{"SubmitNoWait", (*uring.Ring).SubmitNoWait},
		{"brief Wait", func(r *uring.Ring) (int, error) { return r.Wait(uring.WaitOptions{Count: 1, Brief: true}) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			busytest.Run(t, func(over *atomic.Bool) string { return serveBusy(t, over, test.enter) })
		})
	}
}

// serveBusy starts a server for [busytest.Run].
func serveBusy(t *testing.T, over *atomic.Bool, enter func(*uring.Ring) (int, error)) string {
	r := ringtest.Open(t, &uring.Options{Entries: 4})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		c, err := l.Accept()
		if err != nil {
			panic(err)
		}
		raw, err := c.(*net.TCPConn).SyscallConn()
		if err != nil {
			panic(err)
		}
		_ = raw.Read(func(fd uintptr) bool { // waits without a call that enters the scheduler
			if n, _ := sys.SockRecv(int(fd), make([]byte, 1), 0); n < 1 {
				return false
			}
			for cqes := make([]uring.CQE, 1); !over.Load(); {
				r.SQE().Nop()
				if _, err := enter(r); err != nil {
					panic(err)
				}
				r.Reap(cqes)
			}
			return true
		})
	}()
	return l.Addr().String()
}
