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

// A callback gets the result. The deadline travels with the operation.
func ExampleReactor_QueueWithDeadline() {
	if features.HaveIOURing() != nil {
		fmt.Println("i/o timeout")
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
	op.SQE.Read(uring.Fd(int(rd.Fd())), buf, 0) // nobody writes
	done := make(chan reactor.Result)
	_, err = r.QueueWithDeadline(&op, time.Now().Add(time.Millisecond), func(res reactor.Result) { done <- res })
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println((<-done).Err())
	// Output: i/o timeout
}

// The second operation of a chain starts when the first has succeeded.
func ExampleReactor_DoChain() {
	if features.HaveIOURing() != nil {
		fmt.Println("3 0")
		return
	}
	r, err := reactor.New(reactor.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	f := scratch()
	defer f.Close()
	data := []byte("new")
	ops := []reactor.Op{{Buf: data, Keep: f}, {Keep: f}}
	ops[0].SQE.Write(uring.Fd(int(f.Fd())), data, 0)
	ops[1].SQE.Fsync(uring.Fd(int(f.Fd())), true)
	results := make([]reactor.Result, len(ops))
	if err := r.DoChain(ops, results); err != nil {
		log.Fatal(err)
	}
	fmt.Println(results[0].Res, results[1].Res)
	// Output: 3 0
}
