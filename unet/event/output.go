// SPDX-License-Identifier: MIT

package event

import (
	"sync"

	"github.com/ringside-io/ringside/internal/sys"
)

// chunk is memory that waits to be sent. It belongs to one connection, and from
// the submission of a send to its completion to the kernel.
type chunk struct {
	b     []byte // what has to be sent
	next  *chunk
	class int
}

// chunkSizes are the lengths of chunks. A short answer takes a small one; a
// peer that reads slowly gets large ones, so that they stay few.
var chunkSizes = [...]int{2 << 10, 16 << 10, 64 << 10}

// chunkPools hold chunks that nobody uses, by class.
var chunkPools [len(chunkSizes)]sync.Pool

func newChunk(class int) *chunk {
	if ch, ok := chunkPools[class].Get().(*chunk); ok {
		return ch
	}
	return &chunk{b: make([]byte, 0, chunkSizes[class]), class: class}
}

func (ch *chunk) free() {
	sys.Poison(ch.b)
	ch.b = ch.b[:0:chunkSizes[ch.class]]
	ch.next = nil
	chunkPools[ch.class].Put(ch)
}

// classFor returns the smallest class that holds n bytes, the largest if none.
func classFor(n int) int {
	for i, size := range chunkSizes {
		if n <= size {
			return i
		}
	}
	return len(chunkSizes) - 1
}

// outQueue is what a connection has accepted and the kernel has not yet taken.
// The connection's mutex guards it.
type outQueue struct {
	head, tail *chunk
	n          int  // bytes
	off        int  // of the head, sent already
	busy       bool // the kernel has the head
}

// add copies p to the end.
func (q *outQueue) add(p []byte) {
	q.n += len(p)
	for len(p) > 0 {
		t := q.tail
		if t == nil || t == q.head && q.busy || len(t.b) == cap(t.b) {
			t = q.grow(len(p))
		}
		k := min(len(p), cap(t.b)-len(t.b))
		t.b = append(t.b, p[:k]...)
		p = p[k:]
	}
}

// grow appends a chunk for n more bytes, larger than the one before it.
func (q *outQueue) grow(n int) *chunk {
	class := classFor(n)
	if q.tail == nil {
		ch := newChunk(class)
		q.head, q.tail = ch, ch
		return ch
	}
	ch := newChunk(max(class, min(q.tail.class+1, len(chunkSizes)-1)))
	q.tail.next = ch
	q.tail = ch
	return ch
}

// front returns what is to be sent next, nil if nothing is.
func (q *outQueue) front() []byte {
	if q.head == nil {
		return nil
	}
	return q.head.b[q.off:]
}

// advance drops n bytes that the kernel has taken from the front.
func (q *outQueue) advance(n int) {
	q.n -= n
	q.off += n
	if ch := q.head; q.off == len(ch.b) {
		q.head, q.off = ch.next, 0
		if q.head == nil {
			q.tail = nil
		}
		ch.free()
	}
}

// drop forgets everything. The kernel must not have the head.
func (q *outQueue) drop() {
	for ch := q.head; ch != nil; {
		next := ch.next
		ch.free()
		ch = next
	}
	*q = outQueue{}
}
