// SPDX-License-Identifier: MIT

//go:build linux

package reactor_test

import (
	"fmt"
	"log"
	"os"
	"time"

	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/reactor"
	"github.com/ringside-io/ringside/uring"
)

// A goroutine starts an operation and waits for its end.
func Example() {
	if features.HaveIOURing() != nil {
		fmt.Println("hello")
		return
	}
	r, err := reactor.New(reactor.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	f := scratch()
	defer f.Close()
	buf := make([]byte, 5)
	op := reactor.Op{Buf: buf, Keep: f}
	op.SQE.Read(uring.Fd(int(f.Fd())), buf, 0)
	res := r.Do(&op)
	if err := res.Err(); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", buf[:res.Res])
	// Output: hello
}

// A callback gets the result. Here a timer cancels the operation.
func ExampleReactor_Queue() {
	if features.HaveIOURing() != nil {
		fmt.Println("operation canceled")
		return
	}
	r, err := reactor.New(reactor.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	rd, wr, err := os.Pipe()
	if err != nil {
		log.Fatal(err)
	}
	defer rd.Close()
	defer wr.Close()
	buf := make([]byte, 1)
	op := reactor.Op{Buf: buf, Keep: rd}
	op.SQE.Read(uring.Fd(int(rd.Fd())), buf, 0) // the pipe stays empty
	done := make(chan reactor.Result)
	id, err := r.Queue(&op, func(res reactor.Result) { done <- res })
	if err != nil {
		log.Fatal(err)
	}
	time.AfterFunc(time.Millisecond, func() { _ = r.Cancel(id) })
	fmt.Println((<-done).Err())
	// Output: operation canceled
}

// scratch makes a file that says hello.
func scratch() *os.File {
	f, err := os.CreateTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	_ = os.Remove(f.Name())
	if _, err := f.WriteString("hello"); err != nil {
		log.Fatal(err)
	}
	return f
}
