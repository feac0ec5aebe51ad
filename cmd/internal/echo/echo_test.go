// SPDX-License-Identifier: MIT

package echo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/loadgen"
	"github.com/ringside-io/ringside/internal/ringtest"
)

// roleEnv makes the test binary act as one of the processes of a round.
const roleEnv = "RINGSIDE_ECHO_ROLE"

func TestMain(m *testing.M) {
	role, engine, _ := strings.Cut(os.Getenv(roleEnv), " ")
	var err error
	switch role {
	case "":
		os.Exit(m.Run())
	case "server":
		err = Serve(engine, os.Stdin, os.Stdout)
	case "load":
		err = ServeLoad(context.Background(), os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// asRole starts the test binary in a role.
func asRole(t *testing.T, role string) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS == "windows" {
		t.Skip("needs env(1)")
	}
	// The race detector would wait a second at each exit.
	return []string{"env", roleEnv + "=" + role, "GORACE=atexit_sleep_ms=0", self}
}

func engines(t *testing.T) []string {
	names := []string{NameStd, NameEvent, NameConn}
	if runtime.GOOS == "linux" {
		names = append(names, NameNetpoll)
	}
	if ringWorks() {
		names = append(names, NameSQPoll)
	}
	return names
}

func ringWorks() bool {
	s, err := Start(NameSQPoll)
	if err != nil {
		return false
	}
	return s.Close() == nil
}

func TestEnginesEcho(t *testing.T) {
	for _, name := range engines(t) {
		t.Run(name, func(t *testing.T) {
			s, err := Start(name)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}()
			c, err := net.Dial("tcp", s.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(ringtest.Patience))
			p := bytes.Repeat([]byte("0123456789"), 2000)
			if _, err := c.Write(p); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len(p))
			if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, p) {
				t.Errorf("came back changed, or not: %v", err)
			}
			if backend, _ := s.Backend(); backend == "" {
				t.Error("no backend")
			}
		})
	}
	if _, err := Start("abacus"); !errors.Is(err, ErrUnknown) {
		t.Errorf("unknown engine: %v", err)
	}
}

func TestRound(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs the load generator, which needs epoll")
	}
	r := Runner{
		Server: func(engine string) []string { return asRole(t, "server "+engine) },
		Load:   asRole(t, "load"),
	}
	job := loadgen.Job{Connections: 3, Size: 100, Warm: 5 * time.Millisecond, Measure: 40 * time.Millisecond}
	for _, name := range engines(t) {
		s, err := r.Round(t.Context(), name, job)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if s.Ops == 0 || s.CPU <= 0 || !s.Go || s.Backend == "" {
			t.Errorf("%s: %+v", name, s)
		}
		if name == NameEvent && s.Backend == "io_uring" && s.Enters <= 0 {
			t.Errorf("%d enters", s.Enters)
		}
	}
	if _, err := r.Round(t.Context(), "abacus", job); err == nil || !strings.Contains(err.Error(), "abacus") {
		t.Errorf("unknown engine: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	job.Measure = time.Minute
	if _, err := r.Round(ctx, NameStd, job); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a context that ends: %v", err)
	}
}
