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
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// feeder is a Frames, or requests.
type feeder interface {
	Feed(data []byte, each func(frame []byte) error) error
	End(each func(frame []byte) error) error
}

// pieces cuts p into pieces whose lengths come from cuts, and passes each in new memory,
// which is overwritten afterwards. It returns copies of the frames.
func pieces(f feeder, p, cuts []byte, pauses bool) (got [][]byte, err error) {
	count := 0
	each := func(frame []byte) error {
		got = append(got, bytes.Clone(frame))
		if count++; pauses && count%3 == 0 {
			return ErrPause
		}
		return nil
	}
	feed := func(p []byte) error {
		err := f.Feed(p, each)
		for errors.Is(err, ErrPause) {
			err = f.Feed(nil, each)
		}
		return err
	}
	for i := 0; len(p) > 0; i++ {
		n := len(p)
		if len(cuts) > 0 {
			n = min(n, int(cuts[i%len(cuts)])+1)
		}
		piece := bytes.Clone(p[:n])
		if err := feed(piece); err != nil {
			return got, err
		}
		for i := range piece {
			piece[i] = 0xdb
		}
		p = p[n:]
	}
	err = f.End(each)
	for errors.Is(err, ErrPause) {
		err = f.End(each)
	}
	return got, err
}

// scanned returns the lines that package bufio finds.
func scanned(p []byte, most int) (want [][]byte, err error) {
	s := bufio.NewScanner(bytes.NewReader(p))
	s.Buffer(nil, most+2)
	for s.Scan() {
		if len(s.Bytes()) > most {
			return want, bufio.ErrTooLong
		}
		want = append(want, bytes.Clone(s.Bytes()))
	}
	return want, s.Err()
}

func compare(t *testing.T, got, want [][]byte, gotErr, wantErr error) {
	t.Helper()
	if (gotErr != nil) != (wantErr != nil) {
		t.Errorf("error %v, want %v", gotErr, wantErr)
	}
	if !slices.EqualFunc(got, want, bytes.Equal) {
		t.Errorf("%d frames %.200q,\nwant %d %.200q", len(got), got, len(want), want)
	}
}

// FuzzLines compares with bufio.Scanner.
// Promise: unet/event/framing-frames-stream
func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nbb\r\n\r\n\nccc"), []byte{0}, false)
	f.Add([]byte("a\nbb\r\n\n\n\n\n\n\n\nccc\n"), []byte{200}, true)
	f.Add([]byte(strings.Repeat("x", 40)+"\r"), []byte{3}, false)
	f.Add([]byte(strings.Repeat("x", 41)), []byte{255}, true)
	f.Fuzz(func(t *testing.T, p, cuts []byte, pauses bool) {
		const most = 40
		got, err := pieces(Lines(most), p, cuts, pauses)
		want, wantErr := scanned(p, most)
		compare(t, got, want, err, wantErr)
		want, wantErr = scanned(p, 1<<20)
		for _, frames := range []*Frames{Split(bufio.ScanLines, 1<<20), Lines(math.MaxInt)} {
			got, err = pieces(frames, p, cuts, pauses)
			compare(t, got, want, err, wantErr)
		}
	})
}

// FuzzLengthPrefix compares with reads by encoding/binary.
// Promise: unet/event/framing-frames-stream
func FuzzLengthPrefix(f *testing.F) {
	f.Add([]byte("\x00\x02ab\x00\x00\x00\x01c"), []byte{0}, uint8(1), false)
	f.Add([]byte("\x02\x00ab\xff\xff"), []byte{9}, uint8(5), true)
	f.Fuzz(func(t *testing.T, p, cuts []byte, kind uint8, pauses bool) {
		width := 1 << (kind & 3)
		var order binary.ByteOrder = binary.BigEndian
		if kind&4 != 0 {
			order = binary.LittleEndian
		}
		const most = 300
		var want [][]byte
		var wantErr error
		var back []byte
		for rest := p; len(rest) > 0; {
			if len(rest) < width {
				wantErr = io.ErrUnexpectedEOF
				break
			}
			wide := make([]byte, 8)
			if order == binary.LittleEndian {
				copy(wide, rest[:width])
			} else {
				copy(wide[8-width:], rest[:width])
			}
			n := order.Uint64(wide)
			if n > most || n > uint64(len(rest)-width) {
				wantErr = io.ErrUnexpectedEOF
				break
			}
			want = append(want, rest[width:width+int(n)])
			back, _ = AppendPrefixed(back, width, order, rest[width:width+int(n)])
			rest = rest[width+int(n):]
		}
		if !bytes.HasPrefix(p, back) {
			t.Errorf("AppendPrefixed made %q of the frames of %q", back, p)
		}
		got, err := pieces(LengthPrefix(width, order, most), p, cuts, pauses)
		compare(t, got, want, err, wantErr)
	})
}

// TestLongFrames uses frames that are longer than what Feed copies at once, with pieces of
// all lengths.
func TestLongFrames(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var p []byte
	var want [][]byte
	for range 300 {
		frame := bytes.Repeat([]byte{byte(r.IntN(256))}, r.IntN(20)*r.IntN(400))
		want = append(want, frame)
		p, _ = AppendPrefixed(p, 4, binary.LittleEndian, frame)
	}
	for range 50 {
		cuts := make([]byte, 1+r.IntN(50))
		for i := range cuts {
			cuts[i] = byte(r.IntN(256))
		}
		got, err := pieces(LengthPrefix(4, binary.LittleEndian, 8000), p, cuts, r.IntN(2) == 0)
		compare(t, got, want, err, nil)
	}
}

// TestNotCopied checks that frames within a piece are parts of it, also behind a frame
// whose beginning was kept.
func TestNotCopied(t *testing.T) {
	f := Lines(100)
	piece := []byte("rest\nwhole\nagain\npart")
	inside := func(frame []byte) bool {
		p := piece[:cap(piece)]
		for i := range p {
			if &p[i] == &frame[0] {
				return true
			}
		}
		return false
	}
	if err := f.Feed([]byte("kept "), nil); err != nil {
		t.Fatal(err)
	}
	var got []string
	err := f.Feed(piece, func(frame []byte) error {
		got = append(got, fmt.Sprint(string(frame), inside(frame)))
		return nil
	})
	if want := []string{"kept restfalse", "wholetrue", "againtrue"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	if f.Buffered() != len("part") {
		t.Errorf("%d bytes are kept", f.Buffered())
	}
	if n := testing.AllocsPerRun(100, func() { _ = f.Feed(piece, func([]byte) error { return nil }) }); n > 0 {
		t.Errorf("%v allocations for a piece", n)
	}
}

// Promise: unet/event/framing-frames-stream
func TestTooLong(t *testing.T) {
	none := func([]byte) error { return nil }
	for _, c := range []struct {
		name string
		f    *Frames
		p    string
	}{
		{"line", Lines(3), "abcd\n"},
		{"line without an end", Lines(3), "abcde"},
		{"line that cannot end in time", Lines(3), "abcd"},
		{"u16", LengthPrefix(2, binary.BigEndian, 3), "\x00\x04"},
		{"u64", LengthPrefix(8, binary.LittleEndian, 3), "\xff\xff\xff\xff\xff\xff\xff\xff"},
		{"word", Split(bufio.ScanWords, 3), "abcd"},
	} {
		err := c.f.Feed([]byte(c.p), none)
		var long *TooLongError
		if !errors.As(err, &long) || long.Max != 3 {
			t.Errorf("%s: %v", c.name, err)
		}
		if again := c.f.Feed([]byte("a\n"), none); again != err {
			t.Errorf("%s: after the error %v", c.name, again)
		}
	}
	if err := Lines(3).Feed([]byte("abc\r\n"), none); err != nil {
		t.Errorf("a line of just the limit: %v", err)
	}
	if err := Lines(math.MaxInt).Feed([]byte("abc"), none); err != nil {
		t.Errorf("the start of a line without a limit: %v", err)
	}
	if _, err := AppendPrefixed(nil, 1, binary.BigEndian, make([]byte, 256)); err == nil {
		t.Error("256 bytes have a length of one byte")
	}
	if p, err := AppendPrefixed(nil, 8, binary.BigEndian, []byte("x")); err != nil || len(p) != 9 {
		t.Errorf("a length of 8 bytes: %q, %v", p, err)
	}
}

// TestErrorOfTheFunction checks that Feed returns the function's error and refuses further
// pieces.
func TestErrorOfTheFunction(t *testing.T) {
	f, mine, n := Lines(10), errors.New("mine"), 0
	each := func([]byte) error { n++; return mine }
	for range 2 {
		if err := f.Feed([]byte("a\nb\n"), each); err != mine {
			t.Fatal(err)
		}
	}
	if err := f.End(each); err != mine || n != 1 {
		t.Errorf("%v after %d calls", err, n)
	}
}

// TestSingleBytes checks that the work for a long line is linear in its length when it
// arrives byte by byte: each byte is examined once.
// Promise: unet/event/framing-frames-stream
func TestSingleBytes(t *testing.T) {
	s := &counting{most: 1 << 16}
	f := &Frames{split: s}
	for range s.most {
		if err := f.Feed([]byte("x"), nil); err != nil {
			t.Fatal(err)
		}
	}
	if s.looked != s.most {
		t.Errorf("%d bytes were examined for a line of %d", s.looked, s.most)
	}
}

// TestPausesMoveNothing pauses after each frame of one piece: the data that is kept stays where it
// is, so that the work is linear in its length.
// Promise: unet/event/framing-frames-stream
func TestPausesMoveNothing(t *testing.T) {
	f := Lines(10)
	places := map[*byte]bool{}
	each := func(frame []byte) error { places[&frame[0]] = true; return ErrPause }
	const lines = 20
	for err := f.Feed(bytes.Repeat([]byte("line\n"), lines), each); err != nil; err = f.Feed(nil, each) {
		if !errors.Is(err, ErrPause) {
			t.Fatal(err)
		}
	}
	if len(places) != lines {
		t.Errorf("%d lines were at %d places", lines, len(places))
	}
}

type counting struct{ most, looked int }

func (c *counting) next(p []byte, seen int) (int, []byte, error) {
	c.looked += len(p) - seen
	return lines(c.most).next(p, seen)
}

func (c *counting) rest(p []byte) (int, []byte, error) { return len(p), p, nil }

func BenchmarkLines(b *testing.B) {
	p := bytes.Repeat([]byte("a line of some forty bytes, as they come\n"), 100)
	f := Lines(100)
	b.SetBytes(int64(len(p)))
	b.ReportAllocs()
	for b.Loop() {
		_ = f.Feed(p, func([]byte) error { return nil })
	}
}

// TestTokensAtTheEnd compares the tokens at the end of a stream with those of bufio.Scanner.
// Promise: unet/event/framing-frames-stream
func TestTokensAtTheEnd(t *testing.T) {
	pairs := func(p []byte, atEOF bool) (int, []byte, error) { // a token is known when another byte follows
		if len(p) > 2 || atEOF && len(p) > 0 {
			return 1, p[:1], nil
		}
		return 0, nil, nil
	}
	comments := func(p []byte, atEOF bool) (int, []byte, error) { // skips what follows #
		if len(p) > 0 && p[0] == '#' {
			if atEOF {
				return len(p), nil, nil
			}
			return 0, nil, nil
		}
		return bufio.ScanBytes(p, atEOF)
	}
	for name, split := range map[string]bufio.SplitFunc{
		"ScanRunes": bufio.ScanRunes, "ScanWords": bufio.ScanWords, "ScanLines": bufio.ScanLines, "ScanBytes": bufio.ScanBytes,
		"pairs": pairs, "comments": comments,
	} {
		for _, stream := range []string{"a\xe2\x82", "\xf0\x9f\x98", "one two ", "one\ntwo", "ab # the end"} {
			var want []string
			sc := bufio.NewScanner(strings.NewReader(stream))
			for sc.Split(split); sc.Scan(); {
				want = append(want, sc.Text())
			}
			for _, pause := range []bool{false, true} {
				var got []string
				each := func(frame []byte) error {
					got = append(got, string(frame))
					if pause {
						return ErrPause
					}
					return nil
				}
				f := Split(split, 100)
				err := f.Feed([]byte(stream), each)
				for err == ErrPause {
					err = f.Feed(nil, each)
				}
				for err = f.End(each); err == ErrPause; {
					err = f.End(each)
				}
				if !slices.Equal(got, want) || err != nil {
					t.Errorf("%s of %q, paused %v: %q, %v, want %q", name, stream, pause, got, err, want)
				}
			}
		}
	}
}
