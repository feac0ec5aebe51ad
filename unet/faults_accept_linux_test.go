// SPDX-License-Identifier: MIT

package unet_test

import (
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/unet"
)

// TestServerWithoutDescriptors takes all descriptors from a web server that
// waits in Accept, and has connections come: neither the server nor the driver
// may spin, and all are served when there are descriptors again.
func TestServerWithoutDescriptors(t *testing.T) {
	eachMode(t, func(t *testing.T, s *unet.System) {
		l := listen(t, s, "tcp")
		server := &http.Server{ErrorLog: log.New(io.Discard, "", 0)}
		done := start(func() error { return server.Serve(l) })
		ask(t, rawClient(t), l.Addr()) // Accept has worked, and waits again
		var clients []int
		for range 5 {
			clients = append(clients, rawClient(t))
		}
		release := useUp(t)
		for _, fd := range clients {
			if err := connectRaw(fd, l.Addr()); err != nil {
				release()
				t.Fatal(err)
			}
		}
		used := quietest(0.5, 200*time.Millisecond)
		release()
		if used > 0.5 {
			t.Errorf("without descriptors the process uses %.0f%% of a processor", used*100)
		}
		for _, fd := range clients {
			ask(t, fd, nil)
		}
		_ = server.Close()
		if err := soon(t, "the server", done); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

// rawClient returns a socket that is not connected yet.
func rawClient(t *testing.T) int {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

func connectRaw(fd int, to net.Addr) error {
	a := to.(*net.TCPAddr)
	return syscall.Connect(fd, &syscall.SockaddrInet4{Port: a.Port, Addr: [4]byte(a.IP.To4())})
}

// ask sends a request, after connecting when there is an address, and closes the
// socket.
func ask(t *testing.T, fd int, to net.Addr) {
	t.Helper()
	if to != nil {
		if err := connectRaw(fd, to); err != nil {
			t.Fatal(err)
		}
	}
	f := os.NewFile(uintptr(fd), "client")
	defer f.Close()
	tv := syscall.NsecToTimeval(patience.Nanoseconds())
	if err := syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &tv); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(f, "GET / HTTP/1.0\r\n\r\n")
	if answer, err := io.ReadAll(f); err != nil || !strings.Contains(string(answer), " 404 ") {
		t.Errorf("%q, %v", answer, err)
	}
}

// useUp opens descriptors until there are none, and returns what closes them.
func useUp(t *testing.T) (release func()) {
	t.Helper()
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 200, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	var fds []int
	for {
		fd, err := syscall.Dup(2)
		if err != nil {
			break
		}
		fds = append(fds, fd)
	}
	return func() {
		for _, fd := range fds {
			_ = syscall.Close(fd)
		}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	}
}

// quietest returns the least share of a processor that the process used in one
// of many spans of time, of which it looks at no more when one is below enough:
// who spins does so in each, the runtime's work beside is done with some day.
func quietest(enough float64, span time.Duration) float64 {
	least := 1e9
	for n := 0; n < 25 && least >= enough; n++ {
		begin, before := time.Now(), cpuTime()
		time.Sleep(span)
		least = min(least, float64(cpuTime()-before)/float64(time.Since(begin)))
	}
	return least
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
