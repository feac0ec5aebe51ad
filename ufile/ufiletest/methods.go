// SPDX-License-Identifier: MIT

package ufiletest

import (
	"bytes"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"
)

// positioned calls the methods that take an offset.
func positioned(c *script, f File) {
	c.readAt(f, 5, 0)
	c.readAt(f, 0, 0)
	c.readAt(f, 5, -1)
	c.readAt(f, 0, -1)
	c.try("ReadAt(nil)", func() string {
		n, err := f.ReadAt(nil, 2)
		return fmt.Sprintf("%d, %s", n, describe(err))
	})
	c.writeAt(f, []byte("ab"), 1)
	c.writeAt(f, nil, 1)
	c.writeAt(f, []byte{}, 1<<40)
	c.writeAt(f, []byte("ab"), -1)
	c.writeAt(f, nil, -1)
}

// sequential calls the methods that move the position.
func sequential(c *script, f File) {
	c.seek(f, 1, 0)
	c.read(f, 3)
	c.read(f, 0)
	c.write(f, []byte("XY"))
	c.write(f, nil)
	c.try("WriteString", func() string {
		n, err := f.WriteString("Z")
		return fmt.Sprintf("%d, %s", n, describe(err))
	})
	c.try("ReadFrom", func() string {
		n, err := f.ReadFrom(strings.NewReader("from"))
		return fmt.Sprintf("%d, %s", n, describe(err))
	})
	c.seek(f, 0, 1)
	c.seek(f, 0, 0)
	c.try("WriteTo", func() string {
		var b bytes.Buffer
		n, err := f.WriteTo(&b)
		return fmt.Sprintf("%d, %s, %s", n, describe(err), digest(b.Bytes()))
	})
	c.read(f, 3)
}

// others calls the methods that concern the file as a whole.
func others(c *script, f File) {
	c.try("Sync", func() string { return describe(f.Sync()) })
	c.try("Truncate(-1)", func() string { return describe(f.Truncate(-1)) })
	c.try("Truncate(7)", func() string { return describe(f.Truncate(7)) })
	c.try("Chmod", func() string { return describe(f.Chmod(0o700)) })
	c.stat(f)
	c.try("ReadDir", func() string {
		entries, err := f.ReadDir(-1)
		return fmt.Sprintf("%s, %s", names(entries), describe(err))
	})
	for _, at := range []time.Time{{}, time.Unix(1, 0)} {
		c.try("SetDeadline", func() string { return describe(f.SetDeadline(at)) })
		c.try("SetReadDeadline", func() string { return describe(f.SetReadDeadline(at)) })
		c.try("SetWriteDeadline", func() string { return describe(f.SetWriteDeadline(at)) })
	}
	c.try("Name", func() string { return f.Name() })
	connection(c, f)
	c.try("Fd", func() string { return fmt.Sprintf("valid: %v", f.Fd() != ^uintptr(0)) })
}

func connection(c *script, f File) {
	c.try("SyscallConn", func() string {
		conn, err := f.SyscallConn()
		if err != nil {
			return describe(err)
		}
		ran := false
		err = conn.Control(func(uintptr) { ran = true })
		return fmt.Sprintf("runs: %v, %s", ran, describe(err))
	})
}

// everything calls every method and closes the file twice.
func everything(c *script, f File) {
	positioned(c, f)
	sequential(c, f)
	others(c, f)
	for range 2 {
		c.try("Close", func() string { return describe(f.Close()) })
	}
}

func methodsOn(c *script, flag int) {
	path := c.create("file", []byte("0123456789"))
	everything(c, c.openFile(path, flag))
	c.content(path)
}

func methodsReadWrite(c *script) { methodsOn(c, os.O_RDWR) }
func methodsReadOnly(c *script)  { methodsOn(c, os.O_RDONLY) }
func methodsWriteOnly(c *script) { methodsOn(c, os.O_WRONLY) }
func methodsAppend(c *script)    { methodsOn(c, os.O_RDWR|os.O_APPEND) }

func methodsEmpty(c *script) {
	path := c.create("file", nil)
	f := c.openFile(path, os.O_RDONLY)
	c.readAt(f, 1, 0)
	c.readAt(f, 1, 1)
	c.readAt(f, 0, 0)
	c.read(f, 1)
	everything(c, f)
}

func methodsDirectory(c *script) {
	if err := os.Mkdir(c.path("dir"), 0o700); err != nil {
		c.t.Fatal(err)
	}
	everything(c, c.openFile(c.path("dir"), os.O_RDONLY))
}

func methodsClosed(c *script) {
	path := c.create("file", []byte("0123456789"))
	f := c.openFile(path, os.O_RDWR)
	c.try("Close", func() string { return describe(f.Close()) })
	everything(c, f)
	c.content(path)
}

// methodsNil calls the methods of a nil pointer.
func methodsNil(c *script) {
	f := c.openFile(c.create("file", nil), os.O_RDWR)
	if reflect.TypeOf(f).Kind() != reflect.Pointer {
		c.t.Skipf("needs a pointer: the implementation is a %T", f)
	}
	everything(c, reflect.Zero(reflect.TypeOf(f)).Interface().(File))
}

// openErrors opens what cannot be opened.
func openErrors(c *script) {
	file := c.create("file", []byte("data"))
	attempt := func(path string, flag int) {
		c.try(fmt.Sprintf("open %s with %#x", path, flag), func() string {
			f, err := c.open(path, flag, 0o640)
			if err != nil {
				return fmt.Sprintf("%s, file: %v", describe(err), f != nil)
			}
			c.files = append(c.files, f)
			return "opens " + f.Name()
		})
	}
	attempt(c.path("none"), os.O_RDONLY)
	attempt("", os.O_RDONLY)
	attempt("zero\x00byte", os.O_RDONLY)
	attempt(c.path("file/below"), os.O_RDONLY)
	attempt(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	attempt(c.dir, os.O_RDWR)
	attempt(c.path("new"), os.O_RDWR|os.O_CREATE)
	attempt(file, os.O_RDWR|os.O_TRUNC)
	c.content(file)
}
