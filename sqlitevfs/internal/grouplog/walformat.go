// SPDX-License-Identifier: MIT

package grouplog

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ringside-io/ringside/internal/walformat"
)

const (
	walHeaderSize   = walformat.HeaderSize
	frameHeaderSize = walformat.FrameHeaderSize
	minPage         = 512
	maxPage         = 65536
)

var (
	be = binary.BigEndian
	le = binary.LittleEndian
)

// Header identifies one life of a WAL: from one restart to the next.
type Header struct {
	PageSize   int
	Checkpoint uint32 // its sequence number
	Salt       [8]byte

	big bool // byte order of the checksums
	sum checksum
}

var errNoWAL = errors.New("not a WAL header")

// ParseHeader parses the first 32 bytes of a WAL. It does not keep p.
func ParseHeader(p []byte) (Header, error) {
	if len(p) < walHeaderSize || be.Uint32(p)&^1 != walformat.Magic || be.Uint32(p[4:]) != walformat.Version {
		return Header{}, errNoWAL
	}
	h := Header{
		PageSize:   int(be.Uint32(p[8:])),
		Checkpoint: be.Uint32(p[12:]),
		Salt:       [8]byte(p[16:24]),
		big:        be.Uint32(p)&1 != 0,
	}
	if h.PageSize < minPage || h.PageSize > maxPage || h.PageSize&(h.PageSize-1) != 0 {
		return Header{}, fmt.Errorf("%w: pages of %d bytes", errNoWAL, h.PageSize)
	}
	h.sum = checksum{}.Add(p[:24], h.big)
	if h.sum != (checksum{be.Uint32(p[24:]), be.Uint32(p[28:])}) {
		return Header{}, fmt.Errorf("%w: wrong checksum", errNoWAL)
	}
	return h, nil
}

// frame returns the size of a frame in bytes.
func (h Header) frame() int64 { return walformat.FrameSize(h.PageSize) }

// aligned reports whether a frame may begin at an offset.
func (h Header) aligned(off int64) bool {
	return off >= walHeaderSize && (off-walHeaderSize)%h.frame() == 0
}

// same reports whether two headers belong to the same life of a WAL.
func (h Header) same(o Header) bool {
	return h.PageSize == o.PageSize && h.Checkpoint == o.Checkpoint && h.Salt == o.Salt
}

// checksum is the running sum that chains the frames of a WAL.
type checksum = walformat.Sum

// chain checks one frame against the sum of what precedes it, and continues it.
func (h Header) chain(c checksum, frame []byte) (checksum, bool) {
	if be.Uint32(frame) == 0 || [8]byte(frame[8:16]) != h.Salt {
		return c, false
	}
	c = c.Add(frame[:8], h.big).Add(frame[frameHeaderSize:], h.big)
	return c, c == checksum{be.Uint32(frame[16:]), be.Uint32(frame[20:])}
}

// commits reports whether a frame ends a transaction.
func commits(frame []byte) bool { return be.Uint32(frame[4:]) != 0 }

// Frames checks the frames of a WAL, which Add receives from its beginning on in pieces of any size.
type Frames struct {
	header Header
	sum    checksum
	begun  bool
	rest   []byte
}

// Add returns false if a frame does not continue those before it.
func (c *Frames) Add(p []byte) bool {
	c.rest = append(c.rest, p...)
	if !c.begun {
		h, err := ParseHeader(c.rest)
		if err != nil {
			return len(c.rest) < walHeaderSize
		}
		c.header, c.sum, c.begun = h, h.sum, true
		c.rest = c.rest[walHeaderSize:]
	}
	frame, ok := int(c.header.frame()), true
	for len(c.rest) >= frame && ok {
		c.sum, ok = c.header.chain(c.sum, c.rest[:frame])
		c.rest = c.rest[frame:]
	}
	return ok
}

// sumOf returns the checksum in a frame.
func sumOf(frame []byte) checksum {
	return checksum{be.Uint32(frame[16:]), be.Uint32(frame[20:])}
}

// Ends reports whether the frames in p, which starts with a frame, end a transaction.
func Ends(p []byte, pageSize int) bool {
	size := frameHeaderSize + pageSize
	return len(p) >= size && len(p)%size == 0 && commits(p[len(p)-size:])
}

// Cursor is a place in a life of a WAL: the end of a frame, and the checksum of all frames before it.
type Cursor struct {
	Header Header
	End    int64 // offset of the next frame
	sum    checksum
}

// Begin returns the place before the first frame.
func (h Header) Begin() Cursor { return Cursor{h, walHeaderSize, h.sum} }

// Frame returns the size of a frame in bytes.
func (h Header) Frame() int { return int(h.frame()) }

// Next moves behind a frame. It returns the frame's page, and the number of pages of the database if the frame ends
// a transaction, else 0. ok is false if the frame does not continue those before it.
func (c *Cursor) Next(frame []byte) (page, size uint32, ok bool) {
	sum, ok := c.Header.chain(c.sum, frame)
	if !ok {
		return 0, 0, false
	}
	c.sum = sum
	c.End += c.Header.frame()
	return be.Uint32(frame), be.Uint32(frame[4:]), true
}
