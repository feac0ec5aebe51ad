// SPDX-License-Identifier: MIT

package ufiletest

import (
	"fmt"
	"math"
	"os"
)

// fileSizes are sizes at and around page boundaries.
var fileSizes = []int{0, 1, 511, 4095, 4096, 4097, 10000}

// readAtMatrix reads files of all sizes, with buffers of all sizes, around
// their ends.
func readAtMatrix(c *script) {
	for _, size := range fileSizes {
		c.label = fmt.Sprintf("size %d: ", size)
		f := c.openFile(c.create(fmt.Sprint("file", size), pattern(size, 1)), os.O_RDONLY)
		for _, n := range []int{0, 1, 2, 4096, 20000} {
			for _, off := range []int{0, 1, size - 2, size - 1, size, size + 1, size + 5000} {
				if off >= 0 {
					c.readAt(f, n, int64(off))
				}
			}
		}
	}
}

// bounds are offsets at which file systems and kernels begin to refuse.
var bounds = []int64{-1, math.MinInt64, 1 << 40, 1 << 43, 1 << 44, 1 << 62, math.MaxInt64 - 8, math.MaxInt64 - 1, math.MaxInt64}

func readAtOffsets(c *script) {
	for _, flag := range []int{os.O_RDONLY, os.O_WRONLY, os.O_RDWR} {
		c.label = fmt.Sprintf("flag %#x: ", flag)
		f := c.openFile(c.create("file", []byte("0123456789")), flag)
		for _, off := range bounds {
			c.readAt(f, 8, off)
			c.readAt(f, 0, off)
		}
		c.readAt(f, 8, 3) // the file works after all of these
	}
}

// writeAtMatrix writes into, across and behind the ends of files.
func writeAtMatrix(c *script) {
	for _, size := range fileSizes {
		c.label = fmt.Sprintf("size %d: ", size)
		for _, n := range []int{0, 1, 4096, 9000} {
			for _, off := range []int{0, 1, size - 1, size, size + 1, size + 5000} {
				if off < 0 {
					continue
				}
				path := c.create("file", pattern(size, 1))
				f := c.openFile(path, os.O_RDWR)
				c.writeAt(f, pattern(n, 2), int64(off))
				c.readAt(f, n, int64(off))
				c.content(path)
				c.try("Close", func() string { return describe(f.Close()) })
			}
		}
	}
}

func writeAtOffsets(c *script) {
	for _, flag := range []int{os.O_RDONLY, os.O_WRONLY, os.O_WRONLY | os.O_APPEND} {
		c.label = fmt.Sprintf("flag %#x: ", flag)
		path := c.create("file", []byte("0123456789"))
		f := c.openFile(path, flag)
		for _, off := range bounds {
			if off >= 1<<40 && off < 1<<62 {
				continue // file systems differ, and some would make such a file
			}
			c.writeAt(f, []byte("8 bytes."), off)
			c.writeAt(f, nil, off)
		}
		notFar(c, path)
		c.writeAt(f, []byte("ab"), 3)
		c.content(path)
	}
}

// notFar truncates a file that the file system has made as large as requested: XFS, Btrfs
// and tmpfs have files of 8 EiB, which no test reads.
func notFar(c *script, path string) {
	st, err := os.Stat(path)
	if err == nil && st.Size() > 1<<40 {
		err = os.Truncate(path, 10)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// appendToEnd writes by two handles that append, and one that truncates.
func appendToEnd(c *script) {
	path := c.create("file", []byte("begin;"))
	a := c.openFile(path, os.O_WRONLY|os.O_APPEND)
	b := c.openFile(path, os.O_RDWR|os.O_APPEND)
	for i, f := range []File{a, b, a, b} {
		c.write(f, fmt.Appendf(nil, "%d;", i))
		c.seek(f, 0, 0)
	}
	c.writeAt(a, []byte("no"), 0)
	c.writeAt(a, nil, 0)
	c.readAt(b, 100, 2)
	c.readAt(a, 1, 0)
	c.try("Truncate", func() string { return describe(a.Truncate(3)) })
	c.write(b, []byte("end"))
	c.content(path)
}

// sparse writes far apart and reads the hole.
func sparse(c *script) {
	path := c.path("file")
	f := c.openFile(path, os.O_RDWR|os.O_CREATE)
	const far = 3<<20 + 17
	c.writeAt(f, []byte("end"), far)
	c.stat(f)
	c.readAt(f, 100, 0)
	c.readAt(f, 10000, 1<<20-1)
	c.readAt(f, 10, far-4)
	c.readAt(f, far+3, 0)
	c.readAt(f, far+4, 0)
	c.writeAt(f, pattern(5000, 3), 1<<20+1)
	c.readAt(f, 10000, 1<<20-1)
	c.content(path)
}

func truncate(c *script) {
	path := c.create("file", pattern(10000, 1))
	f := c.openFile(path, os.O_RDWR)
	other := c.openFile(path, os.O_RDONLY)
	for _, size := range []int64{9999, 4096, 4095, 1, 0, 3, 5000, 0} {
		c.try(fmt.Sprintf("Truncate(%d)", size), func() string { return describe(f.Truncate(size)) })
		for _, h := range []File{f, other} {
			c.readAt(h, 20000, 0)
			c.readAt(h, 10, max(size-5, 0))
			c.readAt(h, 10, size)
			c.stat(h)
		}
	}
	c.writeAt(f, []byte("again"), 2)
	c.readAt(other, 10, 0)
}

// twoHandles writes by one handle and reads by another, one of the implementation and one
// of os. Each must see the other's data at once.
func twoHandles(c *script) {
	path := c.create("file", pattern(100000, 1))
	w := c.openFile(path, os.O_RDWR)
	r := c.openFile(path, os.O_RDONLY)
	foreign, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		c.t.Fatal(err)
	}
	defer foreign.Close()
	for i, off := range []int64{0, 4095, 50000, 99999, 100000, 131071} {
		c.writeAt(w, pattern(3000, byte(2+i)), off)
		c.readAt(r, 5000, max(off-1000, 0))
		c.readAt(foreign, 5000, max(off-1000, 0))
		c.writeAt(foreign, pattern(1000, byte(20+i)), off+500)
		c.readAt(r, 5000, off)
		c.readAt(w, 5000, off)
		c.write(w, pattern(100, byte(30+i))) // at the position, which WriteAt leaves alone
	}
	c.content(path)
}

// large moves more than fits into one piece of anything.
func large(c *script) {
	const size = 5<<20 + 12345
	path := c.path("file")
	f := c.openFile(path, os.O_RDWR|os.O_CREATE)
	c.writeAt(f, pattern(size, 1), 0)
	c.readAt(f, size, 0)
	c.readAt(f, size, 1)
	c.readAt(f, size-1, 1)
	c.readAt(f, 3<<20, 777)
	c.writeAt(f, pattern(3<<20, 2), 2<<20+1)
	c.readAt(f, size+100, 0)
	c.content(path)
	c.seek(f, 0, 0)
	c.write(f, pattern(size/2, 3))
	c.seek(f, 100, 0)
	c.read(f, size/3)
	c.content(path)
}
