// SPDX-License-Identifier: MIT

package ufiletest

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// readersInFlight is how many goroutines use a file that is closed under them.
const readersInFlight = 8

// closeUnderReadAt closes a file during reads and opens another at once, which mostly
// gets the same descriptor. A read must return the first file's data or os.ErrClosed.
func closeUnderReadAt(t *testing.T, s suite) {
	closeUnderReads(t, s, 0, func(n int) []byte { return make([]byte, n) })
}

func closeUnderReads(t *testing.T, s suite, flag int, buffer func(n int) []byte) {
	const size = 8192
	first, second := file(t, "first", size, 1), file(t, "second", size, 2)
	content := pattern(size, 1)
	bufs := make([][]byte, readersInFlight)
	for i := range bufs {
		bufs[i] = buffer(4096)
	}
	for range rounds(60, 30) {
		f := s.openFile(t, first, os.O_RDONLY|flag)
		use := func(g int) bool {
			p := bufs[g]
			clear(p)
			off := int64(g%2) * 4096
			n, err := f.ReadAt(p, off)
			if err != nil {
				checkClosed(t, "read", first, n, err)
				return false
			}
			if !bytes.Equal(p[:n], content[off:][:len(p)]) {
				t.Errorf("ReadAt(%d bytes, %d) during Close = %d, %v, and not the file's data", len(p), off, n, err)
				return false
			}
			return true
		}
		closeUnder(t, f, use, func() File { return s.openFile(t, second, os.O_RDONLY|flag) })
	}
}

// closeUnderWriteAt closes a file during writes and opens another. No write may reach the
// second file.
func closeUnderWriteAt(t *testing.T, s suite) {
	first, second := file(t, "first", 0, 0), file(t, "second", 4096, 2)
	for range rounds(60, 30) {
		f := s.openFile(t, first, os.O_RDWR)
		use := func(g int) bool {
			p := [64]byte{}
			n, err := f.WriteAt(p[:], int64(g*64))
			if err != nil {
				checkClosed(t, "write", first, n, err)
				return false
			}
			return true
		}
		closeUnder(t, f, use, func() File { return s.openFile(t, second, os.O_RDWR) })
	}
	got, err := os.ReadFile(second)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(pattern(4096, 2)) {
		t.Error("a write to a closed file went into another one")
	}
}

// closeUnder closes f while goroutines use it, until each of them got an error, and opens
// another file at once.
func closeUnder(t *testing.T, f File, use func(g int) bool, reopen func() File) {
	t.Helper()
	var used atomic.Int32
	var closed atomic.Bool
	var users sync.WaitGroup
	busy := make(chan struct{}, readersInFlight+1) // all have begun, or one ends early
	for g := range readersInFlight {
		users.Go(func() {
			defer func() { busy <- struct{}{} }()
			for late := false; use(g); late = closed.Load() {
				if late {
					t.Error("a call succeeds that began after Close")
					return
				}
				if used.Add(1) == 2*readersInFlight {
					busy <- struct{}{}
				}
				runtime.Gosched() // the closer wants its turn
			}
		})
	}
	<-busy
	if err := f.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	closed.Store(true)
	other := reopen()
	users.Wait()
	if err := other.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// checkClosed checks the result of a call on a closed file.
func checkClosed(t *testing.T, op, path string, n int, err error) {
	t.Helper()
	e, ok := err.(*fs.PathError)
	if n != 0 || !ok || e.Op != op || e.Path != path || !errors.Is(err, os.ErrClosed) {
		t.Errorf("%s during Close = %d, %v (%#v)", op, n, err, err)
	}
}

// closeTwice has several goroutines close one file: one succeeds.
func closeTwice(t *testing.T, s suite) {
	path := file(t, "file", 10, 1)
	for range 20 {
		f := s.openFile(t, path, os.O_RDONLY)
		var closers sync.WaitGroup
		var won atomic.Int32
		for range 4 {
			closers.Go(func() {
				switch err := f.Close(); {
				case err == nil:
					won.Add(1)
				default:
					checkClosed(t, "close", path, 0, err)
				}
			})
		}
		closers.Wait()
		if won.Load() != 1 {
			t.Errorf("%d of 4 calls of Close succeed", won.Load())
		}
	}
}
