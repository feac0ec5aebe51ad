// SPDX-License-Identifier: MIT

package ufiletest

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
)

// device opens a character device.
func (c *script) device(path string) File {
	c.t.Helper()
	if st, err := os.Stat(path); err != nil || st.Mode()&os.ModeCharDevice == 0 {
		c.t.Skipf("needs the device %s: %v", path, err)
	}
	return c.openFile(path, os.O_RDWR)
}

func deviceNull(c *script) {
	f := c.device(os.DevNull)
	positioned(c, f)
	c.readAt(f, 10, 1<<40)
	sequential(c, f)
	connection(c, f)
	c.stat(f)
}

func deviceZero(c *script) {
	f := c.device("/dev/zero")
	positioned(c, f)
	c.readAt(f, 3<<20, 1<<40)
	c.read(f, 1<<20)
	c.write(f, pattern(1<<20, 1))
	c.stat(f)
}

func deviceFull(c *script) {
	f := c.device("/dev/full")
	positioned(c, f)
	c.read(f, 10)
	c.write(f, []byte("no space"))
	c.try("ReadFrom", func() string {
		n, err := f.ReadFrom(bytes.NewReader(pattern(100, 1)))
		return fmt.Sprintf("%d, %s", n, describe(err))
	})
}

// proc reads files that say they are regular and empty and are neither.
func proc(c *script) {
	for _, path := range []string{"/proc/version", "/proc/filesystems", "/proc/devices", "/proc/self/environ"} {
		c.label = path + ": "
		if _, err := os.Stat(path); err != nil {
			c.t.Skipf("needs /proc: %v", err)
		}
		f := c.openFile(path, os.O_RDONLY)
		for _, off := range []int64{0, 1, 7, 1 << 20} {
			for _, n := range []int{0, 1, 5, 100, 1 << 16} {
				c.readAt(f, n, off)
			}
		}
		c.read(f, 10)
		c.readAt(f, 10, 3)
		c.read(f, 10)
		c.try("WriteTo", func() string {
			var b bytes.Buffer
			n, err := f.WriteTo(&b)
			return fmt.Sprintf("%d, %s, %s", n, describe(err), digest(b.Bytes()))
		})
		c.writeAt(f, []byte("no"), 0)
	}
	// A file that can be written, but not at an offset.
	c.label = "/proc/self/comm: "
	f := c.openFile("/proc/self/comm", os.O_RDWR)
	c.writeAt(f, []byte("no"), 0)
	c.writeAt(f, []byte("no"), 1)
	c.readAt(f, 100, 0)
}

// unseekable reads a file that says it is regular and has no offsets.
func unseekable(c *script) {
	const path = "/sys/kernel/tracing/trace_pipe"
	if _, err := os.Stat(path); err != nil {
		c.t.Skipf("needs tracefs: %v", err)
	}
	f := c.openFile(path, os.O_RDONLY|syscall.O_NONBLOCK)
	c.readAt(f, 10, 0)
	c.readAt(f, 10, 5)
	c.seek(f, 0, 0)
	c.writeAt(f, []byte("no"), 0)
}

// limit writes across the largest size that a file may have in this process.
func limit(c *script) {
	const most = 1 << 30 // far above what other files of the process need
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		c.t.Fatal(err)
	}
	if was.Cur < most {
		c.t.Skipf("needs RLIMIT_FSIZE of at least %d bytes, this process has %d", most, was.Cur)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: most, Max: was.Max}); err != nil {
		c.t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
			c.t.Errorf("cannot restore RLIMIT_FSIZE: %v", err)
		}
	}()
	path := c.path("file")
	f := c.openFile(path, os.O_RDWR|os.O_CREATE)
	c.writeAt(f, pattern(4096, 1), most-4096)
	c.writeAt(f, pattern(8192, 2), most-4096)
	c.writeAt(f, pattern(3, 3), most)
	c.writeAt(f, pattern(3, 3), most-1)
	c.readAt(f, 8192, most-4096)
	c.seek(f, most-100, 0)
	c.write(f, pattern(1000, 4))
	c.write(f, pattern(1, 5))
	c.try("Truncate", func() string { return describe(f.Truncate(most + 1)) })
	c.stat(f)
}

// seekHole asks for data and holes.
func seekHole(c *script) {
	const seekData, seekHole = 3, 4
	f := c.openFile(c.path("file"), os.O_RDWR|os.O_CREATE)
	c.writeAt(f, pattern(4096, 1), 8<<20)
	for _, off := range []int64{0, 8 << 20, 8<<20 + 4096, 1 << 40} {
		c.seek(f, off, seekData)
		c.seek(f, off, seekHole)
	}
}

// openFlags opens with flags that change how reads and writes behave.
func openFlags(c *script) {
	for _, flag := range []int{
		os.O_RDWR | syscall.O_NONBLOCK, os.O_RDWR | os.O_SYNC, os.O_RDWR | syscall.O_DSYNC,
		os.O_RDWR | syscall.O_NOATIME, oPath,
	} {
		c.label = fmt.Sprintf("flag %#x: ", flag)
		path := c.create("file", []byte("0123456789"))
		f := c.openFile(path, flag)
		positioned(c, f)
		sequential(c, f)
		c.stat(f)
		c.content(path)
	}
}

// oPath is O_PATH, which package syscall does not have: a descriptor that names
// a file and cannot read it.
const oPath = 0x200000
