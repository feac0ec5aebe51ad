// SPDX-License-Identifier: MIT

package ufiletest

import (
	"fmt"
	"os"
)

// stat compares the results of a file's Stat with those of os.Stat for its path.
func stat(c *script) {
	path := c.create("file", pattern(1234, 1))
	f := c.openFile(path, os.O_RDWR)
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"nothing", func() error { return nil }},
		{"Chmod", func() error { return f.Chmod(0o400) }},
		{"Truncate", func() error { return f.Truncate(99) }},
		{"Sync", f.Sync},
		{"rename", func() error { return os.Rename(path, c.path("other")) }},
		{"remove", func() error { return os.Remove(c.path("other")) }},
	} {
		c.try(step.what, func() string { return describe(step.do()) })
		c.stat(f)
		c.try("Name", f.Name)
		c.try("same as its path", func() string {
			st, err := f.Stat()
			if err != nil {
				return describe(err)
			}
			byPath, err := os.Stat(path)
			return fmt.Sprintf("%v, %s", os.SameFile(st, byPath), describe(err))
		})
	}
	c.readAt(f, 10, 90) // removed, but there
}

// descriptor checks that the descriptor is the file's.
func descriptor(c *script) {
	path := c.create("file", []byte("0123456789"))
	f := c.openFile(path, os.O_RDWR)
	c.try("Fd and SyscallConn", func() string {
		conn, err := f.SyscallConn()
		if err != nil {
			return describe(err)
		}
		var same bool
		err = conn.Control(func(fd uintptr) { same = fd == f.Fd() })
		return fmt.Sprintf("same: %v, %s", same, describe(err))
	})
	c.try("RawConn.Read", func() string {
		conn, err := f.SyscallConn()
		if err != nil {
			return describe(err)
		}
		calls := 0
		err = conn.Read(func(uintptr) bool { calls++; return true })
		return fmt.Sprintf("%d calls, %s", calls, describe(err))
	})
	c.readAt(f, 4, 3) // works after the descriptor was handed out
	c.writeAt(f, []byte("--"), 4)
	c.content(path)
}
