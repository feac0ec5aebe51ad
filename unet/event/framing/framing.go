// SPDX-License-Identifier: MIT

package framing

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// Frames cuts one direction of a connection into frames. Its methods must not be called
// concurrently, nor from the function that they call for a frame.
type Frames struct {
	split splitter
	buf   []byte // buf[off:] are the kept data
	off   int
	seen  int // length of the part of buf[off:] in which no frame ends
	err   error
}

// splitter finds the first frame of p. The first seen bytes of p were searched before. It
// returns the length of the frame with its delimiters, and the frame, nil for bytes to be
// skipped. The length is 0 if more data is needed.
type splitter interface {
	next(p []byte, seen int) (n int, frame []byte, err error)
	// rest is next for a stream that ends after p, which is not empty. The length is not 0.
	rest(p []byte) (n int, frame []byte, err error)
}

// TooLongError is the error of a frame that is longer than the length passed to the
// constructor.
type TooLongError struct {
	Max int // largest length in bytes
}

// Error implements error.
func (e *TooLongError) Error() string {
	return fmt.Sprintf("framing: a frame is longer than %d bytes: end the connection, or raise the limit of its constructor", e.Max)
}

// ErrPause is returned by the function passed to [Frames.Feed] if it wants no further
// frame for now.
var ErrPause = errors.New("framing: paused by the function that gets the frames")

// Lines returns a Frames for lines that end with "\n" or "\r\n". The end of line is
// removed, and a line has up to most bytes without it. As with bufio.ScanLines, the last
// line of a stream need not have an end of line; see [Frames.End].
func Lines(most int) *Frames { return &Frames{split: lines(most)} }

// LengthPrefix returns a Frames for frames that follow their length, an unsigned number
// of width bytes in the given byte order. width must be 1, 2, 4 or 8. The length does not
// include the prefix, which is removed. Frames have up to most bytes.
func LengthPrefix(width int, order binary.ByteOrder, most int) *Frames {
	return &Frames{split: prefixed{checkedWidth(width), order, most}}
}

// Split returns a Frames for the tokens of a bufio.SplitFunc, each of up to most bytes
// including the bytes that f skips. If f needs more data, it is called again with the
// same data and more after it. bufio.ErrFinalToken is treated like any other error.
func Split(f bufio.SplitFunc, most int) *Frames { return &Frames{split: custom{f, most}} }

// Feed takes the next data of the stream and calls each for every complete frame, in
// order. The frame is valid until each returns, and Feed does not retain data after it
// returns. Feed returns the first error of the stream or of each. Except for [ErrPause],
// later calls return the same error.
func (f *Frames) Feed(data []byte, each func(frame []byte) error) error {
	_, err := f.feed(data, each)
	return err
}

// feed is Feed. After errBody it returns the rest of data.
func (f *Frames) feed(data []byte, each func(frame []byte) error) ([]byte, error) {
	taken := 0 // of data, into buf
	for step := firstStep; f.err == nil; step *= 2 {
		rest := f.buf[f.off:]
		if f.seen == len(rest) {
			if taken == len(data) {
				return nil, nil
			}
			if len(rest) == 0 {
				return f.feedDirect(data[taken:], each)
			}
			k := min(step, len(data)-taken)
			f.keep(data[taken : taken+k])
			taken += k
			rest = f.buf[f.off:]
		}
		n, frame, err := f.split.next(rest, f.seen)
		if err != nil {
			return nil, f.fail(err)
		}
		if n == 0 {
			f.seen = len(rest)
			continue
		}
		f.off, f.seen = f.off+n, 0
		if frame != nil {
			err = each(frame)
		}
		if left := len(f.buf) - f.off; left <= taken { // data has the bytes that are left in buf
			taken -= left
			f.empty()
		}
		if err != nil {
			return f.stopped(err, data[taken:])
		}
	}
	return nil, f.err
}

// firstStep is the number of bytes that are copied at first to complete a kept frame.
// keptMemory is the largest number of bytes that an empty Frames keeps.
const firstStep, keptMemory = 512, 4 << 10

// feedDirect takes data if nothing is kept.
func (f *Frames) feedDirect(data []byte, each func(frame []byte) error) ([]byte, error) {
	for len(data) > 0 {
		n, frame, err := f.split.next(data, 0)
		switch {
		case err != nil:
			return nil, f.fail(err)
		case n == 0:
			f.keep(data)
			f.seen = len(data)
			return nil, nil
		}
		data = data[n:]
		if frame == nil {
			continue
		}
		if err := each(frame); err != nil {
			return f.stopped(err, data)
		}
	}
	return nil, nil
}

// keep appends data to the kept data.
func (f *Frames) keep(data []byte) {
	if f.off > 0 {
		f.buf = f.buf[:copy(f.buf, f.buf[f.off:])]
		f.off = 0
	}
	f.buf = append(f.buf, data...)
}

func (f *Frames) empty() {
	if f.buf, f.off, f.seen = f.buf[:0], 0, 0; cap(f.buf) > keptMemory {
		f.buf = nil
	}
}

// stopped is the end of feed because of an error of the function that it calls.
func (f *Frames) stopped(err error, rest []byte) ([]byte, error) {
	if err == errBody {
		return rest, err
	}
	return nil, f.stop(err, rest)
}

// stop ends Feed because of an error of the function that it calls.
func (f *Frames) stop(err error, rest []byte) error {
	if !errors.Is(err, ErrPause) {
		return f.fail(err)
	}
	if len(rest) > 0 { // otherwise the kept data would be moved after each frame
		f.keep(rest)
	}
	return err
}

func (f *Frames) fail(err error) error {
	f.err = err
	f.buf, f.off, f.seen = nil, 0, 0
	return err
}

// End must be called at the end of the stream. It calls each for a last line without an
// end of line, and for what a bufio.SplitFunc returns at the end. If the stream has ended
// within a frame, the error is io.ErrUnexpectedEOF. After [ErrPause] it continues like Feed.
func (f *Frames) End(each func(frame []byte) error) error {
	if err := f.Feed(nil, each); err != nil {
		return err
	}
	for f.off < len(f.buf) {
		n, frame, err := f.split.rest(f.buf[f.off:])
		if err != nil {
			return f.fail(err)
		}
		f.off += n
		f.seen = len(f.buf) - f.off // Feed has found no frame in it
		if frame == nil {
			continue
		}
		if err := each(frame); err != nil {
			return f.stop(err, nil)
		}
	}
	f.empty()
	return nil
}

// Buffered returns the number of bytes that are kept.
func (f *Frames) Buffered() int { return len(f.buf) - f.off }

type lines int

func (most lines) next(p []byte, seen int) (int, []byte, error) {
	i := bytes.IndexByte(p[seen:], '\n')
	if i < 0 {
		if len(withoutCR(p)) > int(most) {
			return 0, nil, &TooLongError{int(most)}
		}
		return 0, nil, nil
	}
	line := withoutCR(p[:seen+i])
	if len(line) > int(most) {
		return 0, nil, &TooLongError{int(most)}
	}
	return seen + i + 1, line, nil
}

func (most lines) rest(p []byte) (int, []byte, error) { return len(p), withoutCR(p), nil }

func withoutCR(p []byte) []byte {
	if n := len(p); n > 0 && p[n-1] == '\r' {
		return p[:n-1]
	}
	return p
}

type prefixed struct {
	width int
	order binary.ByteOrder
	most  int
}

func (s prefixed) next(p []byte, _ int) (int, []byte, error) {
	if len(p) < s.width {
		return 0, nil, nil
	}
	var n uint64
	switch s.width {
	case 1:
		n = uint64(p[0])
	case 2:
		n = uint64(s.order.Uint16(p))
	case 4:
		n = uint64(s.order.Uint32(p))
	default:
		n = s.order.Uint64(p)
	}
	if n > uint64(s.most) {
		return 0, nil, &TooLongError{s.most}
	}
	if uint64(len(p)-s.width) < n {
		return 0, nil, nil
	}
	end := s.width + int(n)
	return end, p[s.width:end], nil
}

func (prefixed) rest([]byte) (int, []byte, error) { return 0, nil, io.ErrUnexpectedEOF }

// AppendPrefixed appends the length of frame and then frame to dst, in the format of
// [LengthPrefix], and returns the extended slice. It returns an error if the length does
// not fit into width bytes.
func AppendPrefixed(dst []byte, width int, order binary.ByteOrder, frame []byte) ([]byte, error) {
	width = checkedWidth(width)
	if width < 8 && uint64(len(frame)) > math.MaxUint64>>(64-8*width) {
		return dst, &TooLongError{1<<(8*width) - 1}
	}
	var b [8]byte
	switch width {
	case 1:
		b[0] = byte(len(frame))
	case 2:
		order.PutUint16(b[:], uint16(len(frame)))
	case 4:
		order.PutUint32(b[:], uint32(len(frame)))
	default:
		order.PutUint64(b[:], uint64(len(frame)))
	}
	return append(append(dst, b[:width]...), frame...), nil
}

func checkedWidth(n int) int {
	switch n {
	case 1, 2, 4, 8:
		return n
	}
	panic(fmt.Sprintf("framing: a length of %d bytes: want 1, 2, 4 or 8", n))
}

type custom struct {
	split bufio.SplitFunc
	most  int
}

func (s custom) next(p []byte, _ int) (int, []byte, error) { return s.token(p, false) }

func (s custom) token(p []byte, atEOF bool) (int, []byte, error) {
	n, frame, err := s.split(p, atEOF)
	switch {
	case err != nil:
		return 0, nil, err
	case n < 0 || n > len(p) || n == 0 && frame != nil:
		return 0, nil, fmt.Errorf("framing: the bufio.SplitFunc advances by %d of %d bytes", n, len(p))
	case n > s.most || n == 0 && len(p) > s.most:
		return 0, nil, &TooLongError{s.most}
	}
	return n, frame, nil
}

func (s custom) rest(p []byte) (int, []byte, error) {
	n, frame, err := s.token(p, true)
	if err == nil && n == 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, frame, err
}
