// SPDX-License-Identifier: MIT

package reactor

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

// TestOpensWithTheCallersThread opens a file of root from a thread with another file
// system user, beside goroutines of root that use the same ring all the time: each open
// has the rights of its own thread.
func TestOpensWithTheCallersThread(t *testing.T) {
	ringtest.NeedRing(t)
	if os.Getuid() != 0 {
		t.Skip("needs root, to change the user of a thread")
	}
	name := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	path, err := uring.NewPath(name)
	if err != nil {
		t.Fatal(err)
	}
	r, err := New(Options{Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	open := func() error {
		op := Op{Keep: path}
		op.SQE.OpenAt(uring.AtCWD, path, os.O_RDONLY|syscall.O_CLOEXEC, 0)
		res := r.Do(&op)
		if res.Err() == nil {
			syscall.Close(int(res.Res))
		}
		return res.Err()
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if g%2 == 0 {
					if err := open(); err != nil && !errors.Is(err, syscall.EAGAIN) {
						t.Errorf("root may not open the file: %v", err)
						return
					}
				} else {
					var op Op
					op.SQE.Nop()
					r.Do(&op)
				}
			}
		})
	}
	opened := make(chan int)
	go func() {
		runtime.LockOSThread() // and the thread ends with this goroutine
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETFSUID, 65534, 0, 0); errno != 0 {
			t.Error(errno)
		}
		n := 0
		for range ringtest.Rounds(600, 200) {
			if open() == nil {
				n++
			}
		}
		opened <- n
	}()
	n := <-opened
	close(stop)
	wg.Wait()
	if n > 0 {
		t.Errorf("a thread without the right opened the file %d times", n)
	}
}
