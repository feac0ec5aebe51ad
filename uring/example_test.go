// SPDX-License-Identifier: MIT

package uring_test

import (
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"path/filepath"

	"github.com/ringside-io/ringside/uring"
)

// Read a file. Where io_uring is missing or forbidden, Open returns an error and the
// program continues without it.
func Example() {
	name := filepath.Join(os.TempDir(), fmt.Sprintf("uring-example-%d", os.Getpid()))
	if err := os.WriteFile(name, []byte("hello, ring"), 0o600); err != nil {
		log.Fatal(err)
	}
	defer os.Remove(name)

	data, err := readFile(name)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", data)
	// Output: hello, ring
}

func readFile(name string) ([]byte, error) {
	ring, err := uring.Open(uring.Options{})
	if err != nil {
		return os.ReadFile(name)
	}
	defer ring.Close()
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()

	buf := make([]byte, 64)
	ring.SQE().Read(uring.Fd(int(f.Fd())), buf, 0).SetUserData(1)
	var done [1]uring.CQE
	for ring.Reap(done[:]) == 0 { // a signal may end the wait early
		if _, err := ring.SubmitAndWait(1); err != nil {
			return nil, err
		}
	}
	// The operation has completed, so buf belongs to the program again.
	if err := done[0].Err(); err != nil {
		return nil, err
	}
	return buf[:done[0].Res], nil
}

// Echo the data of a connection. One multishot receive serves the whole connection; the
// kernel takes a buffer only when data arrives.
func ExampleRing_NewBufRing() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer listener.Close()
	served := make(chan error)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			err = echo(conn.(*net.TCPConn))
		}
		served <- err
	}()

	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Fprint(conn, "is the server there?")
	conn.(*net.TCPConn).CloseWrite()
	answer, err := io.ReadAll(conn)
	if err != nil {
		log.Fatal(err)
	}
	conn.Close()
	if err := <-served; err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", answer)
	// Output: is the server there?
}

func echo(conn *net.TCPConn) error {
	defer conn.Close()
	ring, err := uring.Open(uring.Options{})
	if err != nil {
		_, err = io.Copy(conn, conn)
		return err
	}
	defer ring.Close()
	bufs, err := ring.NewBufRing(uring.BufRingOptions{Entries: 8, BufferSize: 4096})
	if err != nil {
		_, err = io.Copy(conn, conn)
		return err
	}
	file, err := conn.File()
	if err != nil {
		return err
	}
	defer file.Close()
	fd := uring.Fd(int(file.Fd()))

	const receiving, sending = 1 << 16, 2 << 16 // flag bit beside the buffer's number
	ring.SQE().RecvMultishot(fd, 0, bufs.Group()).SetUserData(receiving)
	done := make([]uring.CQE, 8)
	for inFlight, open := 0, true; open || inFlight > 0; {
		if _, err := ring.SubmitAndWait(1); err != nil {
			return err
		}
		for _, c := range done[:ring.Reap(done)] {
			if err := c.Err(); err != nil {
				return err
			}
			if c.UserData&sending != 0 { // the reply is sent: the buffer is free
				bufs.Recycle(uint16(c.UserData))
				bufs.Publish()
				inFlight--
				continue
			}
			data, _ := bufs.Take(c)
			if len(data) == 0 {
				open = false // the end of the stream also ends the receive
				continue
			}
			ring.SQE().Send(fd, data, 0).SetUserData(sending | uint64(c.BufferID()))
			inFlight++
		}
	}
	return nil
}

// Write, then read the written data, in one submission: a link starts the second operation
// after the first has succeeded.
func ExampleSQE_SetFlags() {
	f, err := os.CreateTemp("", "uring-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.Remove(f.Name())
	defer f.Close()

	in, out := []byte("one after the other"), make([]byte, 32)
	n, err := writeAndRead(f, in, out)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", out[:n])
	// Output: one after the other
}

func writeAndRead(f *os.File, in, out []byte) (int, error) {
	ring, err := uring.Open(uring.Options{})
	if err != nil {
		if _, err := f.WriteAt(in, 0); err != nil {
			return 0, err
		}
		n, err := f.ReadAt(out, 0)
		if err == io.EOF {
			err = nil
		}
		return n, err
	}
	defer ring.Close()
	fd := uring.Fd(int(f.Fd()))
	ring.SQE().Write(fd, in, 0).SetUserData(1).SetFlags(uring.SQELink)
	ring.SQE().Read(fd, out, 0).SetUserData(2)
	var done [2]uring.CQE
	for n := 0; n < len(done); n += ring.Reap(done[n:]) {
		if _, err := ring.SubmitAndWait(1); err != nil {
			return 0, err
		}
	}
	for _, c := range done {
		if err := c.Err(); err != nil {
			return 0, err // operations linked behind a failed one complete with ECANCELED
		}
	}
	return int(done[1].Res), nil
}
