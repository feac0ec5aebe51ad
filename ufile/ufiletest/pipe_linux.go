// SPDX-License-Identifier: MIT

package ufiletest

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"
	"time"
)

// fifo makes a named pipe and opens both ends, the reader first, which then
// does not wait for the writer.
func (c *script) fifo() (r, w File) {
	c.t.Helper()
	path := c.path("fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		c.t.Skipf("needs named pipes: %v", err)
	}
	r = c.openFile(path, os.O_RDONLY|syscall.O_NONBLOCK)
	return r, c.openFile(path, os.O_WRONLY)
}

// pipeMethods calls what cannot wait.
func pipeMethods(c *script) {
	r, w := c.fifo()
	c.label = "writer: "
	positioned(c, w)
	c.write(w, []byte("data"))
	c.write(w, nil)
	c.seek(w, 0, 0)
	c.read(w, 1)
	c.label = "reader: "
	positioned(c, r)
	c.seek(r, 0, 1)
	c.write(r, []byte("data"))
	c.read(r, 0)
	c.read(r, 100)
	for _, f := range []File{w, r} {
		c.try("Truncate", func() string { return describe(f.Truncate(0)) })
		c.try("Sync", func() string { return describe(f.Sync()) })
		c.try("ReadDir", func() string { _, err := f.ReadDir(-1); return describe(err) })
		c.stat(f)
		connection(c, f)
	}
	c.try("Close", func() string { return describe(w.Close()) })
	c.read(r, 10)
	c.try("Close", func() string { return describe(r.Close()) })
	everything(c, r)
}

// pipeTransfer moves more than a pipe holds, so that both ends wait.
func pipeTransfer(c *script) {
	r, w := c.fifo()
	const size = 1 << 20
	wrote := make(chan string, 1)
	go func() {
		n, err := w.ReadFrom(bytes.NewReader(pattern(size, 1)))
		m, err2 := w.Write(pattern(size, 2))
		wrote <- fmt.Sprintf("%d, %s; %d, %s; %s", n, describe(err), m, describe(err2), describe(w.Close()))
	}()
	first := make([]byte, size)
	n, err := io.ReadFull(r, first)
	c.note("first half: %d, %s, %s", n, describe(err), digest(first))
	var rest bytes.Buffer
	m, err := r.WriteTo(&rest)
	c.note("second half: %d, %s, %s", m, describe(err), digest(rest.Bytes()))
	c.note("writer: %s", <-wrote)
	c.read(r, 10)
}

// pipeDeadline lets reads and writes run into deadlines, set before and during
// the call, and go on after them.
func pipeDeadline(c *script) {
	r, w := c.fifo()
	past, soon := time.Unix(1, 0), func() time.Time { return time.Now().Add(5 * time.Millisecond) }
	c.try("SetDeadline", func() string { return describe(r.SetDeadline(past)) })
	c.read(r, 1)
	c.try("SetReadDeadline", func() string { return describe(r.SetReadDeadline(soon())) })
	c.read(r, 1)
	c.read(r, 1)
	c.write(w, []byte("late"))
	c.try("SetReadDeadline", func() string { return describe(r.SetReadDeadline(time.Time{})) })
	c.read(r, 10)
	// A deadline that comes while a read waits ends it.
	ended := make(chan string, 1)
	go func() {
		n, err := r.Read(make([]byte, 1))
		ended <- fmt.Sprintf("%d, %s", n, describe(err))
	}()
	c.try("SetDeadline", func() string { return describe(r.SetDeadline(soon())) })
	c.note("Read = %s", <-ended)
	// A write that does not fit has written a part when its deadline comes.
	const tooMuch = 1 << 20
	go func() {
		n, err := w.Write(make([]byte, tooMuch))
		ended <- fmt.Sprintf("a part: %v, %s", 0 < n && n < tooMuch, describe(err))
	}()
	c.try("SetDeadline", func() string { return describe(r.SetDeadline(time.Time{})) })
	c.read(r, 10) // the write has begun
	c.try("SetWriteDeadline", func() string { return describe(w.SetWriteDeadline(past)) })
	c.note("Write = %s", <-ended)
	c.write(w, []byte("no"))
	c.read(r, 10)
}

// pipeClose closes a pipe under a read that waits.
func pipeClose(t *testing.T, s suite) {
	c := &script{t: t, dir: t.TempDir(), open: s.open}
	defer c.end()
	r, _ := c.fifo()
	type answer struct {
		n   int
		err error
	}
	answers := make(chan answer)
	conn, err := r.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	waiting := make(chan struct{})
	go func() { // a read that is known to have found nothing before it waits
		looked := false
		err := conn.Read(func(uintptr) bool {
			if !looked {
				looked = true
				close(waiting)
			}
			return false
		})
		answers <- answer{0, err}
	}()
	<-waiting
	go func() { // queued behind the other
		n, err := r.Read(make([]byte, 1))
		answers <- answer{n, err}
	}()
	if err := r.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	for range 2 {
		if a := <-answers; a.n != 0 || a.err == nil {
			t.Errorf("a read that waited when the pipe was closed = %d, %v", a.n, a.err)
		}
	}
	n, err := r.Read(make([]byte, 1))
	checkClosed(t, "read", c.path("fifo"), n, err)
}
