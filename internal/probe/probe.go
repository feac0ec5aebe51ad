// SPDX-License-Identifier: MIT

// Package probe has the parts that only feature detection needs: a cache that keeps
// only conclusive results, the settings that allow or forbid io_uring (sysctls,
// seccomp, limits, security modules, containers), harmless system calls that show if a
// call reaches the kernel, and the parsing of kernel versions for messages and tests.
package probe

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/ringside-io/ringside/internal/sys"
)

// Cache keeps the results of expensive probes. All methods may be called
// concurrently. A probe runs once at a time, and other callers wait for its result.
type Cache[K comparable, V any] struct {
	// Conclusive reports whether a result with this error stays true. The cache does
	// not keep other results. It must be set before the first use.
	Conclusive func(error) bool

	entries sync.Map // K to *entry[V]
}

type entry[V any] struct {
	asking sync.Mutex
	answer atomic.Pointer[answer[V]]
}

type answer[V any] struct {
	value V
	err   error
}

// Get returns the kept result for key. If there is none, it calls ask and keeps the
// result if it is conclusive. ask may use the cache for other keys.
func (c *Cache[K, V]) Get(key K, ask func() (V, error)) (V, error) {
	v, ok := c.entries.Load(key)
	if !ok {
		v, _ = c.entries.LoadOrStore(key, new(entry[V]))
	}
	e := v.(*entry[V])
	if a := e.answer.Load(); a != nil {
		return a.value, a.err
	}
	e.asking.Lock()
	defer e.asking.Unlock()
	if a := e.answer.Load(); a != nil {
		return a.value, a.err
	}
	value, err := ask()
	if c.Conclusive(err) {
		e.answer.Store(&answer[V]{value, err})
	}
	return value, err
}

// EnterErrno calls io_uring_enter(2) with the flags on a descriptor that does
// not exist. EBADF means that the kernel was reached and knows the flags,
// EINVAL that it does not know them; anything else comes from a filter, or
// from a kernel without io_uring.
func EnterErrno(flags uint32) syscall.Errno {
	_, errno := sys.EnterRaw(-1, 0, uintptr(flags))
	return errno
}

// RegisterErrno calls io_uring_register(2) without an argument. On a ring whose
// restrictions allow nothing, EACCES means that the kernel knows the operation,
// EINVAL that it does not.
func RegisterErrno(fd int, op uint32) syscall.Errno {
	_, errno := sys.Register(fd, op, nil, 0)
	return errno
}

// Version is a kernel version. It appears in messages and tests, never in a
// decision: distributions move features between versions.
type Version struct{ Major, Minor int }

// String returns the version as major.minor.
func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

// Less reports whether v is older than w.
func (v Version) Less(w Version) bool {
	return v.Major < w.Major || v.Major == w.Major && v.Minor < w.Minor
}

// ParseVersion reads the leading major.minor of a release such as
// 6.1.0-47-amd64.
func ParseVersion(release string) (Version, error) {
	major, rest, ok := strings.Cut(release, ".")
	if !ok {
		return Version{}, fmt.Errorf("kernel release %q has no major.minor", release)
	}
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end >= 0 {
		rest = rest[:end]
	}
	a, err1 := strconv.Atoi(major)
	b, err2 := strconv.Atoi(rest)
	if err1 != nil || err2 != nil {
		return Version{}, fmt.Errorf("kernel release %q has no major.minor", release)
	}
	return Version{a, b}, nil
}

// Release returns the release of the running kernel as uname -r prints it, ""
// when unknown.
func Release() string { return sys.KernelRelease() }

// Kernel returns the version of the running kernel.
func Kernel() (Version, error) { return ParseVersion(sys.KernelRelease()) }
