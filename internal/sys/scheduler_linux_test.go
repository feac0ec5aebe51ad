// SPDX-License-Identifier: MIT

package sys

import (
	"net"
	"sync/atomic"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/busytest"
)

// TestRawCallsKeepTheNetwork has a goroutine make raw calls only. See wakeMonitor.
// Promise: unet/goroutine-never-idle
func TestRawCallsKeepTheNetwork(t *testing.T) {
	busytest.Run(t, func(over *atomic.Bool) string {
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
				p := make([]byte, 1)
				if n, _ := SockRecv(int(fd), p, 0); n < 1 {
					return false
				}
				for !over.Load() {
					_, _ = SockRecv(int(fd), p, 0)
				}
				return true
			})
		}()
		return l.Addr().String()
	})
}

// TestRawCallsAreCounted makes ten times as many calls as wake the monitor once.
func TestRawCallsAreCounted(t *testing.T) {
	var calls RawCalls
	woken := 0
	for range 10 * quietCalls {
		if calls.due() {
			woken++
		}
	}
	if woken != 10 {
		t.Errorf("the monitor is woken %d times, want 10", woken)
	}
}
