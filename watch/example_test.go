// SPDX-License-Identifier: MIT

//go:build unix

package watch_test

import (
	"fmt"
	"os"
	"runtime"
	"syscall"

	"github.com/ringside-io/ringside/watch"
)

// Example waits for a pipe to have something to read.
func Example() {
	runtime.LockOSThread() // the goroutine that waits stays on its thread
	defer runtime.UnlockOSThread()
	w, err := watch.New(watch.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer w.Close()
	r, wr, err := os.Pipe()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	defer wr.Close()
	fd, err := watch.FD(r) // r.Fd would make the descriptor block
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := w.Add(fd, watch.Read, watch.Level, "the pipe"); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Fprint(wr, "hello")
	for {
		n, err := w.Poll(-1, func(e watch.Event) {
			buf := make([]byte, 16)
			n, _ := syscall.Read(e.FD, buf)
			fmt.Printf("%v: %v, %q\n", e.Value, e.Events, buf[:n])
		})
		if n > 0 || err != nil {
			return
		}
	}
	// Output: the pipe: read, "hello"
}
