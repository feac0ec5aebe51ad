// SPDX-License-Identifier: MIT

// Package ringtest has helpers for the tests of this module: the leak checks of
// TestMain, skips that name a missing feature and cannot hide a failure, the
// flavours of rings that kernel tests run over, and NOP-injected errors.
package ringtest

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
)

var open struct {
	sync.Mutex
	fds  map[int]string // where each was opened
	also func(fd int, opened bool)
}

func trace(fd int, opened bool) {
	open.Lock()
	defer open.Unlock()
	if open.also != nil {
		open.also(fd, opened)
	}
	if !opened {
		delete(open.fds, fd)
		return
	}
	buf := make([]byte, 8<<10)
	open.fds[fd] = string(buf[:runtime.Stack(buf, false)])
}

// OnFD calls also for each descriptor that is opened or closed from now on, until stop. also must
// open and close none. Replacing sys.FDTrace would race with an earlier test's goroutine that closes.
func OnFD(also func(fd int, opened bool)) (stop func()) {
	set := func(also func(int, bool)) {
		open.Lock()
		defer open.Unlock()
		open.also = also
	}
	set(also)
	return func() { set(nil) }
}

// Main runs the tests of a package and fails when they leave a descriptor or a
// goroutine behind. Call it from TestMain and pass the result to os.Exit.
func Main(m *testing.M) int {
	open.fds = make(map[int]string)
	sys.FDTrace = trace
	code := m.Run()
	if code != 0 {
		return code
	}
	if left := goroutines(Patience); left != "" {
		fmt.Fprintf(os.Stderr, "leak: goroutines are still running:\n%s\n", left)
		code = 1
	}
	// Last, because goroutines close descriptors when they end.
	for fd, stack := range openFDs() {
		fmt.Fprintf(os.Stderr, "leak: descriptor %d is still open; it was opened by\n%s\n", fd, stack)
		code = 1
	}
	return code
}

func openFDs() map[int]string {
	open.Lock()
	defer open.Unlock()
	return maps.Clone(open.fds)
}

// goroutines waits until only the runtime's own goroutines and the caller are
// left, and returns the stacks of the others when the time is over.
func goroutines(patience time.Duration) string {
	deadline := time.Now().Add(patience)
	for {
		left := ownGoroutines()
		if left == "" || time.Now().After(deadline) {
			return left
		}
		runtime.Gosched()
	}
}

// Descriptors returns what the open descriptors of this process refer to, by their numbers: of those
// whose target, such as a path or "anon_inode:[io_uring]", contains part. Only Linux has any.
func Descriptors(t testing.TB, part string) map[string]string {
	t.Helper()
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	if err != nil && runtime.GOOS == "linux" {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, e := range entries {
		// The descriptor of the directory is closed by now.
		if target, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil && strings.Contains(target, part) {
			out[e.Name()] = target
		}
	}
	return out
}

// detectors is how long goleak waits for goroutines to end, unless it is told otherwise.
const detectors = 430 * time.Millisecond

// EndsForDetectors fails unless what use leaves behind ends before detectors of leaked goroutines
// report it. ended reports whether it has ended. A busy machine is late, so one of many tries must
// be in time.
func EndsForDetectors(t *testing.T, use func(), ended func() bool) {
	t.Helper()
	for range 20 {
		use()
		begin := time.Now()
		for !ended() && time.Since(begin) < detectors {
			time.Sleep(time.Millisecond)
		}
		if ended() {
			return
		}
	}
	t.Errorf("what the last use leaves behind does not end within %v", detectors)
}

func ownGoroutines() string {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	var left []string
	for i, g := range bytes.Split(buf, []byte("\n\n")) {
		s := string(g)
		if i == 0 || strings.Contains(s, "testing.(*M).") || strings.Contains(s, "os/signal.") ||
			strings.Contains(s, "runtime.ensureSigM") {
			continue
		}
		left = append(left, s)
	}
	return strings.Join(left, "\n\n")
}
