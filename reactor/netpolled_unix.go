// SPDX-License-Identifier: MIT

//go:build unix

package reactor

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
)

// netpolled sleeps in Go's netpoller until a ring's descriptor is readable. No
// thread blocks for it.
type netpolled struct {
	fd       int
	file     *os.File
	stopping atomic.Bool
	done     sync.WaitGroup
}

// start polls a duplicate of the descriptor, because an os.File closes what it
// owns.
func (p *netpolled) start(ready func(), failed func(error)) error {
	fd, err := sys.Dup(p.fd)
	if err != nil {
		return err
	}
	if err := syscall.SetNonblock(fd, true); err != nil { // what makes os poll it
		_ = syscall.Close(fd)
		return os.NewSyscallError("fcntl", err)
	}
	p.file = os.NewFile(uintptr(fd), "io_uring")
	// A file that the netpoller does not take would never wake us.
	if err := p.file.SetReadDeadline(time.Time{}); err != nil {
		return errors.Join(fmt.Errorf("poll the ring's descriptor: %w", err), p.file.Close())
	}
	conn, err := p.file.SyscallConn()
	if err != nil {
		return errors.Join(err, p.file.Close())
	}
	p.done.Go(func() {
		// The function runs each time the ring becomes readable. It never
		// says that it is done, so the call lasts until the file is closed.
		err := conn.Read(func(uintptr) bool {
			ready()
			return false
		})
		if !p.stopping.Load() {
			failed(fmt.Errorf("poll the ring's descriptor: %w", err))
		}
	})
	return nil
}

func (p *netpolled) stop() error {
	p.stopping.Store(true)
	err := p.file.Close()
	p.done.Wait()
	return err
}
