// SPDX-License-Identifier: MIT

package ufiletest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// sentinels are the errors that callers ask for by name.
var sentinels = []struct {
	name string
	err  error
}{
	{"io.EOF", io.EOF},
	{"io.ErrUnexpectedEOF", io.ErrUnexpectedEOF},
	{"io.ErrShortWrite", io.ErrShortWrite},
	{"os.ErrClosed", os.ErrClosed},
	{"os.ErrInvalid", os.ErrInvalid},
	{"os.ErrDeadlineExceeded", os.ErrDeadlineExceeded},
	{"os.ErrNoDeadline", os.ErrNoDeadline},
	{"os.ErrNotExist", os.ErrNotExist},
	{"os.ErrExist", os.ErrExist},
	{"os.ErrPermission", os.ErrPermission},
	{"errors.ErrUnsupported", errors.ErrUnsupported},
}

// describe returns the shape of an error: what a program could depend on.
func describe(err error) string {
	if err == nil {
		return "nil"
	}
	for _, s := range sentinels {
		if err == s.err {
			return "bare " + s.name
		}
	}
	if e, ok := err.(*fs.PathError); ok { // not errors.As: it must be on top
		return fmt.Sprintf("PathError{%s %s: %s}", e.Op, e.Path, cause(e.Err))
	}
	if e, ok := err.(*os.LinkError); ok {
		return fmt.Sprintf("LinkError{%s %s %s: %s}", e.Op, e.Old, e.New, cause(e.Err))
	}
	return cause(err)
}

func cause(err error) string {
	var parts []string
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		parts = append(parts, fmt.Sprintf("errno %d", int(errno)))
	} else {
		parts = append(parts, fmt.Sprintf("%q", err.Error()))
	}
	for _, s := range sentinels {
		if errors.Is(err, s.err) {
			parts = append(parts, "is "+s.name)
		}
	}
	if t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err); ok && t.Timeout() {
		parts = append(parts, "is a timeout")
	}
	return strings.Join(parts, ", ")
}
