// SPDX-License-Identifier: MIT

//go:build linux

package reactor_test

import (
	"fmt"
	"log"
	"os"

	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/reactor"
	"github.com/ringside-io/ringside/uring"
)

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

// A file that many goroutines read: the kernel need not look its descriptor up
// each time.
func ExampleReactor_RegisterFile() {
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
	file, err := r.RegisterFile(int(f.Fd()))
	if err != nil {
		log.Fatal(err)
	}
	defer file.Release()

	p := make([]byte, 16)
	op := &reactor.Op{Buf: p, Bytes: len(p), File: file}
	op.SQE.Read(uring.Fd(int(f.Fd())), p, 0) // the descriptor routes the operation
	res := r.Do(op)
	fmt.Printf("%s\n", p[:max(res.Res, 0)])
	// Output: hello
}

// Buffers that the kernel has pinned once, as far as RLIMIT_MEMLOCK lets.
func ExampleBufferPool() {
	if features.HaveIOURing() != nil {
		fmt.Println("hello")
		return
	}
	r, err := reactor.New(reactor.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	pool, err := r.NewBufferPool(reactor.BufferPoolOptions{Buffers: 8, BufferSize: 4096})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	f := scratch()
	defer f.Close()

	b, ok := pool.TryGet()
	if !ok {
		log.Fatal("all buffers are in use")
	}
	op := &reactor.Op{Buffer: b, Bytes: len(b.Bytes())}
	op.SQE.Read(uring.Fd(int(f.Fd())), b.Bytes(), 0)
	res := r.Do(op)
	fmt.Printf("%s\n", b.Bytes()[:max(res.Res, 0)])
	b.Put()
	// Output: hello
}
