// SPDX-License-Identifier: MIT

//go:build unix

package ringloop_test

import (
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/ringloop"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

func TestMain(m *testing.M) { os.Exit(ringtest.Main(m)) }

func TestTemporary(t *testing.T) {
	for errno, want := range map[syscall.Errno]bool{
		syscall.EAGAIN: true, syscall.EBUSY: true, syscall.ENOMEM: true, syscall.EINTR: true,
		syscall.EBADF: false, syscall.EEXIST: false, syscall.EINVAL: false,
	} {
		if got := ringloop.Temporary(os.NewSyscallError("io_uring_enter", errno)); got != want {
			t.Errorf("%v: %v", errno, got)
		}
	}
}

func TestLeak(t *testing.T) {
	kept, other := new(int), new(int)
	ringloop.Leak(kept)
	ringloop.Leak(kept)
	if !ringloop.Leaked(kept) || ringloop.Leaked(other) {
		t.Errorf("kept %v, other %v", ringloop.Leaked(kept), ringloop.Leaked(other))
	}
}

func TestPoller(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	p, err := ringloop.NewPoller(int(r.Fd()), "a pipe")
	if err != nil {
		t.Fatal(err)
	}
	tries := 0
	done := make(chan error)
	go func() {
		done <- p.Wait(func(uintptr) bool {
			tries++
			if tries == 1 {
				go w.Write([]byte("x"))
			}
			return tries == 2
		})
	}()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := p.SetDeadline(time.Unix(1, 0)); err != nil {
		t.Error(err)
	}
	if err := p.Wait(func(uintptr) bool { return false }); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the deadline: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := p.Wait(func(uintptr) bool { return false }); err == nil {
		t.Error("Wait succeeded after Close")
	}
	f, err := os.CreateTemp(t.TempDir(), "regular")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if p, err := ringloop.NewPoller(int(f.Fd()), "a file"); err == nil {
		t.Error("polling a regular file succeeded, want an error")
		_ = p.Close()
	}
}
