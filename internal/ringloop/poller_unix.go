// SPDX-License-Identifier: MIT

//go:build unix

package ringloop

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
)

// Poller waits in Go's netpoller until a descriptor is readable. No thread blocks meanwhile. Its
// methods may be called concurrently.
type Poller struct {
	file *os.File
	conn syscall.RawConn
}

// NewPoller returns a Poller for a duplicate of fd, so that closing the Poller leaves fd open. The
// name appears in errors. fd must support epoll or kqueue; other descriptors are refused.
func NewPoller(fd int, name string) (*Poller, error) {
	file, err := PolledFile(fd, name)
	if err != nil {
		return nil, err
	}
	conn, err := file.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &Poller{file, conn}, nil
}

// PolledFile returns a file with a duplicate of fd that Go's netpoller watches. It fails as
// [NewPoller] does.
func PolledFile(fd int, name string) (*os.File, error) {
	dup, err := sys.Dup(fd)
	if err != nil {
		return nil, explain(err)
	}
	if err := syscall.SetNonblock(dup, true); err != nil { // os polls non-blocking descriptors only
		_ = syscall.Close(dup)
		return nil, os.NewSyscallError("fcntl", err)
	}
	file := os.NewFile(uintptr(dup), name)
	// A file that the netpoller refuses would never report readiness.
	if err := file.SetReadDeadline(time.Time{}); err != nil {
		return nil, errors.Join(fmt.Errorf("poll the descriptor of %s: %w", name, err), file.Close())
	}
	return file, nil
}

// Wait calls try, and again each time the descriptor has become readable, until try returns true. It
// returns an error when the deadline has passed or the Poller is closed.
func (p *Poller) Wait(try func(fd uintptr) bool) error { return p.conn.Read(try) }

// SetDeadline sets when Wait returns with an error: at once if t has passed, never if t is zero. It
// ends a Wait in progress without a system call.
func (p *Poller) SetDeadline(t time.Time) error { return p.file.SetReadDeadline(t) }

// Close ends all calls of Wait.
func (p *Poller) Close() error { return p.file.Close() }
