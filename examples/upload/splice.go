// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/reactor"
	"github.com/ringside-io/ringside/ufile"
	"github.com/ringside-io/ringside/uring"
)

// piece is how much is moved at a time: the capacity of a pipe.
const piece = 64 << 10

// slowest is the longest average time for a byte: 100 KB/s. Without this limit a peer that
// sends a byte now and then would keep a connection forever.
const slowest = 10 * time.Microsecond

// receive moves length bytes from the connection to the file.
func (in *inbox) receive(f *ufile.File, c net.Conn, length int64) error {
	end := time.Now().Add(idle + time.Duration(length)*slowest)
	socket, ok := c.(syscall.Conn)
	if in.ring == nil || !ok {
		_ = c.SetDeadline(end)
		n, err := io.CopyN(f, c, length)
		if err == io.EOF && n < length {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	defer w.Close()
	for at := int64(0); at < length; {
		if soon := time.Now().Add(idle); soon.Before(end) {
			_ = c.SetDeadline(soon)
		} else {
			_ = c.SetDeadline(end)
		}
		n, err := in.fill(raw, w, min(length-at, piece))
		if err != nil {
			return err
		}
		if err := in.drain(r, f, at, n); err != nil {
			return err
		}
		at += int64(n)
	}
	return nil
}

// fill moves up to most bytes from the socket to the pipe. The netpoller waits for the
// socket: a splice that waited would occupy a thread of the kernel.
func (in *inbox) fill(raw syscall.RawConn, w *os.File, most int64) (int, error) {
	var res reactor.Result
	err := raw.Read(func(fd uintptr) (done bool) {
		op := reactor.Op{Keep: w}
		op.SQE.Splice(uring.Fd(int(fd)), uring.CurrentPosition, uring.Fd(int(w.Fd())), uring.CurrentPosition,
			int(most), uring.SpliceMove|uring.SpliceNonblock)
		res = in.do(op)
		return !errors.Is(res.Err(), syscall.EAGAIN)
	})
	switch {
	case err != nil:
		return 0, err
	case res.Err() != nil:
		return 0, os.NewSyscallError("splice", res.Err())
	case res.Res == 0:
		return 0, io.ErrUnexpectedEOF
	}
	return int(res.Res), nil
}

// do runs a splice, again if it was cancelled: Linux 6.1 cancels operations whose worker thread it
// cannot create because of signals. Nothing was moved then. The reactor submits reads and writes
// again, and leaves a splice to its caller.
func (in *inbox) do(splice reactor.Op) (res reactor.Result) {
	for range 64 {
		op := splice
		if res = in.ring.Do(&op); !errors.Is(res.Err(), syscall.ECANCELED) {
			break
		}
	}
	return res
}

// drain moves n bytes from the pipe to an offset of the file.
func (in *inbox) drain(r *os.File, f *ufile.File, at int64, n int) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	for n > 0 {
		var res reactor.Result
		err := raw.Control(func(fd uintptr) {
			op := reactor.Op{Keep: r}
			op.SQE.Splice(uring.Fd(int(r.Fd())), uring.CurrentPosition, uring.Fd(int(fd)), at, n, uring.SpliceMove)
			res = in.do(op)
		})
		switch {
		case err != nil:
			return err
		case res.Err() != nil:
			return os.NewSyscallError("splice", res.Err())
		case res.Res == 0:
			return io.ErrUnexpectedEOF
		}
		at, n = at+int64(res.Res), n-int(res.Res)
	}
	return nil
}
