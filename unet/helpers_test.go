// SPDX-License-Identifier: MIT

package unet_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/unet"
)

// modes are the implementations that every test uses. Package net's connections are among
// them: they show the expected results.
func modes() []unet.Mode {
	if runtime.GOOS != "linux" {
		return []unet.Mode{unet.ModeNet}
	}
	return []unet.Mode{unet.ModeNet, unet.ModePlain, unet.ModeRing}
}

func newSystem(t testing.TB, mode unet.Mode) *unet.System {
	t.Helper()
	if mode == unet.ModeRing {
		ringtest.NeedRing(t)
	}
	s, err := unet.NewSystem(unet.Options{Mode: mode, Restrict: true})
	if errors.Is(err, features.ErrForbidden) && os.Getenv(ringtest.MustEnv) != "io_uring" {
		t.Skipf("needs io_uring: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// eachMode runs a test with every implementation.
func eachMode(t *testing.T, f func(t *testing.T, s *unet.System)) {
	for _, mode := range modes() {
		t.Run(mode.String(), func(t *testing.T) { f(t, newSystem(t, mode)) })
	}
}

// eachPair runs a test with every implementation and family of streams, with both ends of a
// connection.
func eachPair(t *testing.T, f func(t *testing.T, dialed, accepted net.Conn)) {
	for _, network := range []string{"tcp", "unix"} {
		for _, mode := range modes() {
			t.Run(fmt.Sprintf("%s/%v", network, mode), func(t *testing.T) {
				a, b := pair(t, newSystem(t, mode), network)
				f(t, a, b)
			})
		}
	}
}

func listen(t testing.TB, s *unet.System, network string) net.Listener {
	t.Helper()
	address := "127.0.0.1:0"
	if network != "tcp" {
		address = filepath.Join(t.TempDir(), "s")
	}
	l, err := s.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// pair returns both ends of a connection; the end of the test closes them.
func pair(t testing.TB, s *unet.System, network string) (dialed, accepted net.Conn) {
	t.Helper()
	l := listen(t, s, network)
	defer l.Close()
	got := make(chan net.Conn, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			t.Error(err)
		}
		got <- c
	}()
	dialed, err := s.Dial(network, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if accepted = <-got; accepted == nil {
		t.FailNow()
	}
	t.Cleanup(func() { dialed.Close(); accepted.Close() })
	return dialed, accepted
}

// patience bounds waits that fail only when something is broken.
const patience = time.Minute

// soon returns the result of f, or fails.
func soon[T any](t testing.TB, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		buf := make([]byte, 1<<20)
		t.Fatalf("%s: nothing after %v\n%s", what, patience, buf[:runtime.Stack(buf, true)])
	}
	panic("unreachable")
}

// start runs f on a goroutine and returns the channel of its error.
func start(f func() error) <-chan error {
	ch := make(chan error, 1)
	go func() { ch <- f() }()
	return ch
}

// describe formats an error as its chain of types and texts, so that two implementations
// can be compared.
func describe(err error) string {
	if err == nil {
		return "nil"
	}
	var s string
	for e := err; e != nil; e = errors.Unwrap(e) {
		s += fmt.Sprintf("%T ", e)
	}
	if op, ok := err.(*net.OpError); ok {
		s += fmt.Sprintf("op=%s net=%s source=%t addr=%t err=%v", op.Op, op.Net, op.Source != nil, op.Addr != nil, op.Err)
	} else if err == io.EOF {
		s += "EOF"
	} else {
		s += err.Error()
	}
	var ne net.Error
	if errors.As(err, &ne) {
		s += fmt.Sprintf(" timeout=%t", ne.Timeout())
	}
	return s
}

func TestMain(m *testing.M) { os.Exit(ringtest.Main(m)) }
