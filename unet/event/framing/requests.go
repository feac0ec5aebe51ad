// SPDX-License-Identifier: MIT

package framing

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// requests cuts the input of a connection into requests. A request that lies within one
// piece of input is passed as a part of it. Otherwise its head is copied, and its body is
// collected behind the head, or written to a stream.
type requests struct {
	o      *HTTPOptions
	each   func(r *Request) error // gets the request, whose slices are valid until it returns
	frames Frames
	req    Request
	body   body
}

// body is a body that has not arrived as a whole. Its request is req.
type body struct {
	open bool
	left int64   // bytes that have not arrived
	head int     // length of the head at the start of *mem
	mem  *[]byte // the head, and the body unless it is streamed
}

// errBody makes Frames stop after a head whose body follows.
var errBody = errors.New("framing: a body follows")

// next implements splitter. The frame is the request, or only its head if it opens body.
func (q *requests) next(p []byte, seen int) (int, []byte, error) {
	r, n, err := parseHead(p, seen, q.o.MaxHead)
	if err != nil || n == 0 {
		return 0, nil, err
	}
	if q.o.Stream == nil && r.Length > int64(q.o.MaxBody) {
		return 0, nil, q.tooLong()
	}
	q.req = r
	if r.Length == 0 || q.o.Stream == nil && r.Length <= int64(len(p)-n) {
		n += int(r.Length)
		q.req.Body = p[n-int(r.Length) : n]
		return n, p[:n], nil
	}
	q.body = body{open: true, left: r.Length, head: n}
	return n, p[:n], nil
}

// rest implements splitter.
func (*requests) rest([]byte) (int, []byte, error) { return 0, nil, io.ErrUnexpectedEOF }

func (q *requests) tooLong() error {
	return refused(http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is longer than %d bytes", q.o.MaxBody))
}

// feed is [Frames.Feed] for requests.
func (q *requests) feed(data []byte) error {
	for {
		if q.body.open {
			var err error
			if data, err = q.take(data); err != nil {
				q.abandon()
				return q.frames.fail(err)
			}
			if q.body.left > 0 {
				return nil
			}
			if err := q.whole(); err != nil {
				return q.frames.stop(err, data)
			}
		}
		var err error
		if data, err = q.frames.feed(data, q.frame); err != errBody {
			return err
		}
	}
}

// frame handles what next has found.
func (q *requests) frame(head []byte) error {
	if !q.body.open {
		return q.each(&q.req)
	}
	if err := q.begin(head); err != nil {
		q.body.open = false
		return err
	}
	return errBody
}

// begin copies the head of a request whose body follows, and chooses whether to stream it.
func (q *requests) begin(head []byte) error {
	if q.o.Stream != nil {
		w, err := q.o.Stream(&q.req)
		switch {
		case err != nil:
			return refusal(err)
		case w == nil && q.req.Length > int64(q.o.MaxBody):
			return q.tooLong()
		}
		q.req.Stream = w
	}
	if q.req.Stream == nil {
		q.body.grow(len(head), len(head), q.req.Length)
	} else {
		q.body.grow(len(head), len(head), 0)
	}
	*q.body.mem = append(*q.body.mem, head...)
	return nil
}

// refusal returns the error of a request that HTTPOptions.Stream, or its writer, has refused.
func refusal(err error) error {
	var bad *StatusError
	if errors.As(err, &bad) {
		return bad
	}
	return refused(http.StatusInternalServerError, err.Error())
}

// take moves input into the body, and returns the rest of data.
func (q *requests) take(data []byte) ([]byte, error) {
	f := &q.frames
	if f.Buffered() > 0 {
		n, err := q.add(f.buf[f.off:])
		if f.off += n; f.off == len(f.buf) {
			f.empty()
		}
		if err != nil {
			return nil, err
		}
	}
	n, err := q.add(data)
	return data[n:], err
}

// add adds the start of p to the body, and returns its length.
func (q *requests) add(p []byte) (int, error) {
	b := &q.body
	p = p[:min(int64(len(p)), b.left)]
	if len(p) == 0 {
		return 0, nil
	}
	room := q.room()
	b.left -= int64(len(p))
	if w := q.req.Stream; w != nil {
		if n, err := w.Write(p); err != nil {
			return n, refusal(err)
		}
		return len(p), nil
	}
	if len(room) > 0 && &room[0] == &p[0] { // it was received there
		*b.mem = (*b.mem)[:len(*b.mem)+len(p)]
		return len(p), nil
	}
	arrived := len(*b.mem) + len(p)
	b.grow(arrived, arrived, b.left)
	*b.mem = append(*b.mem, p...)
	return len(p), nil
}

// room returns memory for the next bytes of the body, nil if there is none.
func (q *requests) room() []byte {
	if q.body.mem == nil || q.req.Stream != nil {
		return nil
	}
	have := *q.body.mem
	free := have[len(have):cap(have)]
	return free[:min(int64(len(free)), q.body.left)]
}

// receiveInto returns room for the next input, which is part of the body, if that is worth
// a system call. It makes more room if there is little.
func (q *requests) receiveInto() []byte {
	b := &q.body
	if !b.open || q.req.Stream != nil || q.frames.Buffered() > 0 {
		return nil
	}
	room := q.room()
	if int64(len(room)) < min(b.left, leastRoom) {
		b.grow(len(*b.mem)+int(min(b.left, leastRoom)), len(*b.mem), b.left)
		room = q.room()
	}
	return room
}

// leastRoom is the number of bytes from which input is received into the memory of a body.
const leastRoom = 16 << 10

// whole passes the request whose body is complete.
func (q *requests) whole() error {
	b := &q.body
	w := q.req.Stream
	q.req, _, _ = ParseHead(*b.mem, b.head) // its slices were parts of the input
	if q.req.Stream = w; w == nil {
		q.req.Body = (*b.mem)[b.head:]
	}
	b.open = false
	err := q.each(&q.req)
	b.free()
	return err
}

// waits reports whether the client waits for Continue. It does so once.
func (q *requests) waits() bool {
	waits := q.body.open && q.req.Continue && q.body.left == q.req.Length
	q.req.Continue = q.req.Continue && !waits
	return waits
}

// streams reports whether a body is being streamed.
func (q *requests) streams() bool { return q.body.open && q.req.Stream != nil }

// abandon ends a body that is not complete.
func (q *requests) abandon() {
	if !q.body.open {
		return
	}
	q.body.open = false
	q.body.free()
	if c, ok := q.req.Stream.(io.Closer); ok {
		_ = c.Close()
	}
}

// Memory for bodies is pooled by class. A class holds 1<<class bytes and a head.
const smallestBody, largestBody, growth = 12, 21, 8

var bodies [largestBody + 1]sync.Pool

func sizeOf(class int) int { return 1<<class + 1<<(class-3) }

// classFor returns the smallest class that holds n bytes.
func classFor(n int) int {
	class := smallestBody
	for n > sizeOf(class) {
		class++
	}
	return class
}

// grow makes room for need bytes. It makes room for the bytes that are left too, but no
// more than growth times what has arrived, so that an announcement occupies little.
func (b *body) grow(need, arrived int, left int64) {
	if b.mem != nil && cap(*b.mem) >= need {
		return
	}
	want := max(need, arrived+int(min(left, (growth-1)*int64(arrived))))
	old := b.mem
	if class := classFor(want); class > largestBody {
		p := make([]byte, 0, want)
		b.mem = &p
	} else if p, ok := bodies[class].Get().(*[]byte); ok {
		b.mem = p
	} else {
		p := make([]byte, 0, sizeOf(class))
		b.mem = &p
	}
	if old != nil {
		*b.mem = append(*b.mem, *old...)
		release(old)
	}
}

// free releases the memory.
func (b *body) free() {
	if b.mem != nil {
		release(b.mem)
		b.mem = nil
	}
}

func release(p *[]byte) {
	if class := classFor(cap(*p)); class <= largestBody {
		*p = (*p)[:0]
		bodies[class].Put(p)
	}
}
