// SPDX-License-Identifier: MIT

package reactor

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

const seededEnv = "RINGSIDE_TEST_REACTOR_SEEDED"

// seeded are uses of memory while the kernel has it, and correct uses that look like one.
var seeded = map[string]struct {
	reported bool
	make     func(t *testing.T, r *Reactor)
}{
	"read while the kernel may write": {true, func(t *testing.T, r *Reactor) {
		inFlight(t, r, func(p []byte) { sink = p[3] })
	}},
	"write while the kernel may write": {true, func(t *testing.T, r *Reactor) {
		inFlight(t, r, func(p []byte) { p[7] = 1 })
	}},
	"write on another goroutine": {true, func(t *testing.T, r *Reactor) {
		inFlight(t, r, func(p []byte) {
			done := make(chan bool)
			go func() { p[0] = 1; close(done) }()
			<-done
		})
	}},
	"write next to the kernel's memory": {false, func(t *testing.T, r *Reactor) {
		inFlight(t, r, func(p []byte) { p[:16][12] = 1 })
	}},
	"write while the kernel may read": {true, func(t *testing.T, r *Reactor) {
		full(t, r, func(p []byte) { p[0] = 1 })
	}},
	"read while the kernel may read": {false, func(t *testing.T, r *Reactor) {
		full(t, r, func(p []byte) { sink = p[0] })
	}},
	"write while the kernel may write to a vector": {true, func(t *testing.T, r *Reactor) {
		vectored(t, r, func(first, second []byte) { second[1] = 1 })
	}},
	"write next to a vector": {false, func(t *testing.T, r *Reactor) {
		vectored(t, r, func(first, second []byte) { first[:8][5] = 1 })
	}},
	"read of a message that may arrive": {true, func(t *testing.T, r *Reactor) {
		message(t, r, func(p []byte) { sink = p[0] })
	}},
	"use of a message that has arrived": {false, func(t *testing.T, r *Reactor) {
		message(t, r, func([]byte) {})
	}},
	"use after the end": {false, func(t *testing.T, r *Reactor) {
		rfd, wfd := pipe(t)
		p := make([]byte, 8)
		for range 3 {
			go syscall.Write(wfd, []byte("12345678"))
			if res := read(r, rfd, p, 0); res.Res != 8 {
				t.Errorf("%+v", res)
			}
			clear(p)
		}
	}},
}

var sink byte

// inFlight runs f while a read of the first 8 bytes of its buffer waits.
func inFlight(t *testing.T, r *Reactor, f func(p []byte)) {
	rfd, wfd := pipe(t)
	p := make([]byte, 16)[:8]
	done := make(chan Result)
	if _, err := r.Queue(readOp(rfd, p, 0), func(res Result) { done <- res }); err != nil {
		t.Fatal(err)
	}
	f(p)
	if _, err := syscall.Write(wfd, []byte("12345678")); err != nil {
		t.Fatal(err)
	}
	<-done
	sink = p[0]
}

// vectored runs f while a read into two buffers waits: 4 bytes of 8, and 4.
func vectored(t *testing.T, r *Reactor, f func(first, second []byte)) {
	rfd, wfd := pipe(t)
	first, second := make([]byte, 8)[:4], make([]byte, 4)
	iov := []uring.Iovec{uring.NewIovec(first), uring.NewIovec(second)}
	op := &Op{Keep: iov}
	op.SQE.Readv(uring.Fd(rfd), iov, 0, 0)
	done := make(chan Result)
	if _, err := r.Queue(op, func(res Result) { done <- res }); err != nil {
		t.Fatal(err)
	}
	f(first, second)
	if _, err := syscall.Write(wfd, []byte("12345678")); err != nil {
		t.Fatal(err)
	}
	<-done
	first[0], second[0] = 1, 1
}

// message runs f while a message is received.
func message(t *testing.T, r *Reactor, f func(p []byte)) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fds[0])
	defer syscall.Close(fds[1])
	p := make([]byte, 8)
	m := new(uring.Msg)
	m.Set(nil, []uring.Iovec{uring.NewIovec(p)}, nil)
	op := &Op{Buf: p, Keep: m}
	op.SQE.RecvMsg(uring.Fd(fds[0]), m, 0)
	done := make(chan Result)
	if _, err := r.Queue(op, func(res Result) { done <- res }); err != nil {
		t.Fatal(err)
	}
	f(p)
	if _, err := syscall.Write(fds[1], []byte("12345678")); err != nil {
		t.Fatal(err)
	}
	<-done
	p[0]++
}

// full runs f while a write of its buffer waits for room in a pipe.
func full(t *testing.T, r *Reactor, f func(p []byte)) {
	rfd, wfd := pipe(t)
	if err := syscall.SetNonblock(wfd, true); err != nil {
		t.Fatal(err)
	}
	for junk := make([]byte, 4096); ; {
		if _, err := syscall.Write(wfd, junk); err != nil {
			break
		}
	}
	if err := syscall.SetNonblock(wfd, false); err != nil {
		t.Fatal(err)
	}
	op := &Op{Buf: make([]byte, 8)}
	op.SQE.Write(uring.Fd(wfd), op.Buf, 0)
	done := make(chan Result)
	if _, err := r.Queue(op, func(res Result) { done <- res }); err != nil {
		t.Fatal(err)
	}
	f(op.Buf)
	if _, err := syscall.Read(rfd, make([]byte, 8192)); err != nil { // this read makes room
		t.Fatal(err)
	}
	<-done
	op.Buf[0]++
}

// TestRaceDetectorSeesTheKernel seeds early uses of memory that the kernel has. The race
// detector must report each of them, and nothing else.
// Promise: tests/freed-buffer-found
// Promise: uring/race-detector-sees
func TestRaceDetectorSeesTheKernel(t *testing.T) {
	if name := os.Getenv(seededEnv); name != "" {
		seeded[name].make(t, open(t, Options{Loops: 1}))
		return
	}
	switch {
	case !sys.RaceEnabled:
		t.Skip("needs a build with the race detector")
	case testing.Short():
		t.Skip("checks what the race detector finds, not the product: not with -short")
	}
	ringtest.NeedRing(t)
	for name, bug := range seeded {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command("/proc/self/exe", "-test.run=^TestRaceDetectorSeesTheKernel$")
			cmd.Env = append(os.Environ(), seededEnv+"="+name, "GORACE=atexit_sleep_ms=0")
			out, err := cmd.CombinedOutput()
			text := string(out)
			reports := strings.Count(text, "WARNING: DATA RACE")
			switch {
			case !bug.reported && (err != nil || reports > 0):
				t.Errorf("%v\n%s", err, text)
			case bug.reported && (err == nil || reports == 0 || !strings.Contains(text, "(*raceModel)")):
				t.Errorf("%d reports, %v\n%s", reports, err, text)
			}
		})
	}
}
