// SPDX-License-Identifier: MIT

package event

import (
	"io"
	"os"
	"syscall"
)

// sendFile begins to send the file at the head of the queue, in a goroutine: reading it
// may wait for a disk. The caller holds the connection's mutex.
//
// The goroutine uses the connection's descriptor: a duplicate could fail at the limit of
// descriptors, and cut a download. The descriptor stays open until out.busy is reset; if the
// loop fails meanwhile, the goroutine closes it (closeAll). The socket is in blocking mode, so a
// timeout bounds how long a peer that does not read holds the goroutine. Then the loop waits
// until the socket is writable.
func (l *loop) sendFile(c *Conn) {
	k, r := &c.bstate, *c.out.head.file
	if !k.sendTimeout {
		tv := syscall.NsecToTimeval(int64(fileWait))
		k.sendTimeout = syscall.SetsockoptTimeval(k.fd, syscall.SOL_SOCKET, syscall.SO_SNDTIMEO, &tv) == nil
	}
	fd := k.fd
	c.out.busy, c.out.sending = true, true
	l.server.background.Go(func() {
		n, err := c.sendRange(fd, r)
		c.mu.Lock()
		c.out.sending = false
		failed := k.fd < 0
		c.mu.Unlock()
		if failed {
			l.closeFD(fd, k.lingers)
			return
		}
		l.post(func() { l.fileSent(c, n, err) })
	})
}

// fileSent handles the end of a goroutine of sendFile.
func (l *loop) fileSent(c *Conn, n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out.busy = false
	if c.state.closed { // the loop has failed
		return
	}
	c.out.advance(n)
	switch {
	case err == syscall.EAGAIN && !c.state.aborted:
		l.d.awaitWritable(c)
		return
	case err != nil && err != syscall.EAGAIN:
		c.fail(c.opError("write", err))
	}
	l.markDirty(c)
}

// sendRange sends a range of a file until the peer has not read for fileWait (EAGAIN), or
// the connection is aborted.
func (c *Conn) sendRange(fd int, r fileRange) (sent int, err error) {
	raw, err := r.f.SyscallConn()
	if err != nil {
		return 0, err
	}
	ctlErr := raw.Control(func(in uintptr) {
		for sent < r.left && !c.isAborted() && err == nil {
			var n int
			off := r.off + int64(sent)
			n, err = syscall.Sendfile(fd, int(in), &off, min(r.left-sent, filePiece))
			switch {
			case err == syscall.EINTR:
				err = nil
			case err == nil && n == 0:
				err = io.ErrUnexpectedEOF
			case n > 0:
				sent += n
			}
		}
	})
	switch err {
	case nil:
		if ctlErr != nil {
			err = os.ErrClosed
		}
		return sent, err
	case syscall.EINVAL, syscall.ENOSYS, syscall.EOPNOTSUPP: // the file system has no sendfile
		n, err := c.copyRange(fd, r.from(sent))
		return sent + n, err
	}
	return sent, err
}

// copyRange is sendRange by reading and writing.
func (c *Conn) copyRange(fd int, r fileRange) (sent int, err error) {
	buf := make([]byte, 64<<10)
	for sent < r.left && !c.isAborted() {
		n, err := r.f.ReadAt(buf[:min(len(buf), r.left-sent)], r.off+int64(sent))
		if n == 0 {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return sent, err
		}
		for p := buf[:n]; len(p) > 0; {
			n, err := syscall.SendmsgN(fd, p, nil, nil, syscall.MSG_NOSIGNAL)
			if err == syscall.EINTR {
				continue
			}
			if err != nil {
				return sent, err
			}
			sent += n
			p = p[n:]
		}
	}
	return sent, nil
}
