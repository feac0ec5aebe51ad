// SPDX-License-Identifier: MIT

package fileserver

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/ringside-io/ringside/ufile"
)

const (
	// smallMax is the largest body that is read into a buffer and sent with its header in one
	// call. Larger files are sent by sendfile.
	smallMax = 64 << 10
	// chunk is how much of a body is sent at a time where sendfile is not used: a client may take a minute
	// for it.
	chunk = 128 << 10
)

// Buffers for data that is sent, each for the time of one call.
var (
	smallBuffers = sync.Pool{New: func() any { return new([smallMax]byte) }}
	chunkBuffers = sync.Pool{New: func() any { return new([chunk]byte) }}
)

// response sends the content of a file in the cheapest way that the connection allows. A client
// has stallTimeout for each piece.
type response struct {
	http.ResponseWriter
	conn *conn // nil if something is between the response and the socket, such as TLS
}

// WriteHeader removes the header fields of the body when a condition failed and no body follows.
func (w *response) WriteHeader(status int) {
	if status == http.StatusPreconditionFailed {
		header := w.Header()
		delete(header, "Content-Type")
		delete(header, "Content-Length")
		delete(header, "Content-Encoding")
	}
	w.ResponseWriter.WriteHeader(status)
}

// ReadFrom sends a body; http.ServeContent calls it.
func (w *response) ReadFrom(r io.Reader) (n int64, err error) {
	limited, ok := r.(*io.LimitedReader)
	if !ok {
		return io.Copy(struct{ io.Writer }{w.ResponseWriter}, r)
	}
	body, ok := limited.R.(*content)
	switch {
	case !ok: // parts of a file
		n, err = w.pump(limited)
	case body.file == nil:
		noteSmall()
		n, err = w.sendBytes(body.data[body.pos:][:limited.N])
	case limited.N <= smallMax:
		noteSmall()
		n, err = w.sendSmall(body, int(limited.N))
	default:
		n, err = w.sendFile(body, limited.N)
	}
	if ok {
		limited.N -= n
	}
	return n, err
}

// sendSmall sends a part of a file that fits into a buffer.
func (w *response) sendSmall(body *content, n int) (int64, error) {
	buf := smallBuffers.Get().(*[smallMax]byte)
	defer smallBuffers.Put(buf)
	n, err := body.readAt(buf[:n], body.pos)
	sent, sendErr := w.sendBytes(buf[:n])
	if sendErr != nil {
		err = sendErr
	}
	return sent, err
}

// sendBytes sends a body that is in memory together with its header.
func (w *response) sendBytes(p []byte) (int64, error) {
	if from, ok := w.ResponseWriter.(io.ReaderFrom); ok && w.conn != nil {
		w.conn.holdHeader()
		defer w.conn.releaseHeader()
		if err := http.NewResponseController(w.ResponseWriter).Flush(); err != nil {
			return 0, err
		}
		return from.ReadFrom(&memory{p})
	}
	for sent := 0; ; {
		if sent > 0 { // the time of the first piece began with the request
			w.patience()
		}
		n, err := w.Write(p[sent:min(len(p), sent+chunk)])
		if sent += n; err != nil || sent == len(p) {
			return int64(sent), err
		}
	}
}

// sendFile sends a large part of a file.
func (w *response) sendFile(body *content, n int64) (int64, error) {
	from, ok := w.ResponseWriter.(io.ReaderFrom)
	if !ok || w.conn == nil {
		return w.pump(io.NewSectionReader(readerAt{body}, body.pos, n))
	}
	// The header is sent first. Sending it in the same packet as the beginning of the file (MSG_MORE)
	// saves a packet, but was slower in all measurements (docs/serve.md).
	if err := http.NewResponseController(w.ResponseWriter).Flush(); err != nil {
		return 0, err
	}
	return from.ReadFrom(&fileRange{body.file, body.pos, n})
}

// pump sends the content of a reader in large pieces, as long as the client takes them.
func (w *response) pump(r io.Reader) (sent int64, err error) {
	buf := chunkBuffers.Get().(*[chunk]byte)
	defer chunkBuffers.Put(buf)
	for {
		n, err := r.Read(buf[:])
		if n > 0 {
			w.patience()
			m, err := w.Write(buf[:n])
			sent += int64(m)
			if err != nil {
				return sent, err
			}
		}
		if err == io.EOF {
			return sent, nil
		}
		if err != nil {
			return sent, err
		}
	}
}

// patience extends the deadline of the client for a piece, if the connection supports that.
func (w *response) patience() {
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(stallTimeout))
}

// Unwrap is for http.ResponseController.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// readerAt is content at any position.
type readerAt struct{ *content }

// ReadAt implements io.ReaderAt.
func (r readerAt) ReadAt(p []byte, off int64) (int, error) { return r.readAt(p, off) }

// content is the content for http.ServeContent: a file or bytes, with a position of its own.
// Seeking takes no system call.
type content struct {
	file *ufile.File
	data []byte // if file is nil
	size int64
	pos  int64
}

var errSeek = errors.New("seek before the beginning")

// Seek implements io.Seeker.
func (c *content) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += c.pos
	case io.SeekEnd:
		offset += c.size
	}
	if offset < 0 {
		return 0, errSeek
	}
	c.pos = offset
	return offset, nil
}

// Read implements io.Reader, for the parts of several ranges and for guessing a type.
func (c *content) Read(p []byte) (int, error) {
	n, err := c.readAt(p, c.pos)
	c.pos += int64(n)
	if n > 0 {
		err = nil
	}
	return n, err
}

// readAt is io.ReaderAt's, within the size.
func (c *content) readAt(p []byte, off int64) (int, error) {
	if off >= c.size {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), c.size-off)]
	if c.file == nil {
		return copy(p, c.data[off:]), nil
	}
	return c.file.ReadAt(p, off)
}
