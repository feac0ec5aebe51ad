// SPDX-License-Identifier: MIT

//go:build unix

package watch_test

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/watch"
)

// ExampleLoop handles a pipe, a timer and another goroutine.
func ExampleLoop() {
	l, err := watch.NewLoop(watch.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()
	r, w, err := os.Pipe()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	defer w.Close()
	fd, err := watch.FD(r)
	if err != nil {
		fmt.Println(err)
		return
	}
	err = l.Add(fd, watch.Read, watch.Level, func(watch.Events) {
		buf := make([]byte, 16)
		n, _ := syscall.Read(fd, buf)
		fmt.Printf("read %q\n", buf[:n])
		_ = l.Remove(fd)
		l.AfterFunc(time.Millisecond, func() { fmt.Println("a millisecond later") })
		l.Drain() // Run returns when nothing is left to do
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	go l.Post(func() { fmt.Fprint(w, "hello") })
	fmt.Println(l.Run(context.Background()))
	// Output:
	// read "hello"
	// a millisecond later
	// <nil>
}
