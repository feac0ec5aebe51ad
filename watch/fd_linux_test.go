// SPDX-License-Identifier: MIT

package watch_test

import (
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/watch"
)

// TestFD asks for the descriptors of common types of files, which must stay non-blocking.
func TestFD(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, one := range []any{r, w, ln, c} {
		fd, err := watch.FD(one.(syscall.Conn))
		if err != nil {
			t.Fatal(err)
		}
		flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFL, 0)
		if errno != 0 || flags&syscall.O_NONBLOCK == 0 {
			t.Errorf("%T: flags %#x, %v", one, flags, errno)
		}
	}
	w.Close()
	if fd, err := watch.FD(w); err == nil {
		t.Errorf("FD of a closed file is %d", fd)
	}
}
