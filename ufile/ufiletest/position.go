// SPDX-License-Identifier: MIT

package ufiletest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
)

// seek tries combinations of offset and whence, each from the same position.
func seek(c *script) {
	path := c.create("file", []byte("0123456789"))
	f := c.openFile(path, os.O_RDWR)
	for _, whence := range []int{io.SeekStart, io.SeekCurrent, io.SeekEnd, 5, -1, 99} {
		for _, off := range []int64{0, 1, 5, 10, 11, 1000, -1, -4, -10, -11, 1 << 40, math.MaxInt64, math.MinInt64} {
			c.seek(f, 4, io.SeekStart)
			c.seek(f, off, whence)
			c.seek(f, 0, io.SeekCurrent)
			c.read(f, 3)
		}
	}
	c.seek(f, 5, io.SeekEnd)
	c.write(f, []byte("behind"))
	c.content(path)
}

// position mixes calls that move the position with calls that do not.
func position(c *script) {
	path := c.create("file", pattern(1000, 1))
	f := c.openFile(path, os.O_RDWR)
	c.read(f, 10)
	c.readAt(f, 10, 500)
	c.seek(f, 0, io.SeekCurrent)
	c.writeAt(f, []byte("at"), 700)
	c.write(f, []byte("here"))
	c.seek(f, 0, io.SeekCurrent)
	c.read(f, 2000)
	c.read(f, 10)
	c.readAt(f, 10, 0)
	c.try("Truncate", func() string { return describe(f.Truncate(20)) })
	c.read(f, 10)
	c.write(f, []byte("behind"))
	c.content(path)
}

// plainReader and plainWriter hide the other methods of their values.
type plainReader struct{ io.Reader }
type plainWriter struct{ io.Writer }

var errBroken = errors.New("broken")

// brokenReader fails after its data.
type brokenReader struct{ r io.Reader }

func (b brokenReader) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if err == io.EOF {
		err = errBroken
	}
	return n, err
}

// brokenWriter takes a few bytes.
type brokenWriter struct{ room *int }

func (b brokenWriter) Write(p []byte) (int, error) {
	n := min(len(p), *b.room)
	*b.room -= n
	if n < len(p) {
		return n, errBroken
	}
	return n, nil
}

// readFrom copies into a file, from readers of all kinds.
func readFrom(c *script) {
	source := c.create("source", pattern(300000, 1))
	ours := func() File { f := c.openFile(source, os.O_RDONLY); c.seek(f, 1000, 0); return f }
	foreign, err := os.Open(source)
	if err != nil {
		c.t.Fatal(err)
	}
	defer foreign.Close()
	for i, r := range []io.Reader{
		bytes.NewReader(pattern(100000, 2)),
		plainReader{strings.NewReader("plain")},
		io.LimitReader(bytes.NewReader(pattern(5000, 3)), 4000),
		ours(),
		foreign,
		plainReader{ours()},
		io.LimitReader(ours(), 7000),
		brokenReader{bytes.NewReader(pattern(10000, 4))},
		strings.NewReader(""),
	} {
		c.label = fmt.Sprintf("reader %d: ", i)
		path := c.create("target", pattern(2000, 9))
		f := c.openFile(path, os.O_RDWR)
		c.seek(f, 500, 0)
		c.try("ReadFrom", func() string {
			n, err := f.ReadFrom(r)
			return fmt.Sprintf("%d, %s", n, describe(err))
		})
		c.seek(f, 0, io.SeekCurrent)
		c.content(path)
	}
}

// writeTo copies from a file, to writers of all kinds.
func writeTo(c *script) {
	path := c.create("source", pattern(300000, 1))
	target := c.path("target")
	room := 1000
	var b bytes.Buffer
	foreign, err := os.Create(c.path("foreign"))
	if err != nil {
		c.t.Fatal(err)
	}
	defer foreign.Close()
	ours := c.openFile(target, os.O_RDWR|os.O_CREATE)
	for i, w := range []io.Writer{&b, plainWriter{&b}, brokenWriter{&room}, ours, foreign, plainWriter{ours}} {
		c.label = fmt.Sprintf("writer %d: ", i)
		f := c.openFile(path, os.O_RDONLY)
		c.seek(f, int64(100*i), 0)
		for range 2 { // the second copies nothing
			c.try("WriteTo", func() string {
				n, err := f.WriteTo(w)
				return fmt.Sprintf("%d, %s", n, describe(err))
			})
		}
		c.seek(f, 0, io.SeekCurrent)
	}
	c.note("buffer %s", digest(b.Bytes()))
	c.content(target)
	c.content(c.path("foreign"))
}

// readDir lists a directory in pieces.
func readDir(c *script) {
	for i := range 5 {
		c.create(fmt.Sprint("file", i), nil)
	}
	if err := os.Mkdir(c.path("sub"), 0o700); err != nil {
		c.t.Fatal(err)
	}
	d := c.openFile(c.dir, os.O_RDONLY)
	c.stat(d)
	var all []string
	for range 5 {
		c.try("ReadDir(2)", func() string {
			entries, err := d.ReadDir(2)
			for _, e := range entries {
				all = append(all, e.Name()+" "+e.Type().String())
			}
			return fmt.Sprintf("%d, %s", len(entries), describe(err))
		})
	}
	slices.Sort(all)
	c.note("%q", all)
	c.seek(d, 0, 0)
	c.try("ReadDir(0)", func() string {
		entries, err := d.ReadDir(0)
		return fmt.Sprintf("%d, %s", len(entries), describe(err))
	})
}
