// SPDX-License-Identifier: MIT

package watch

import (
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/epoll"
	"github.com/ringside-io/ringside/internal/sys"
)

// wakeData is the user data of the descriptor behind Wake; no registration has
// it, as descriptors are not negative.
const wakeData = ^uint64(0)

// epollBackend arms at once: every change is a system call.
type epollBackend struct {
	t      *table
	in     *epoll.Instance
	wakeup *sys.FD // an eventfd, never read: each signal is an edge
	events []epoll.Event
	n      int // events waiting for collect
	enters *atomic.Uint64

	// A file that was closed while a duplicate of its descriptor lives stays in the
	// instance, and no call removes it: a new instance replaces the old one.
	closedFiles bool // such a file may be registered
	renew       bool // one was reported
}

func newEpoll(t *table, batch int, enters *atomic.Uint64) (*epollBackend, error) {
	in, err := epoll.Open()
	if err != nil {
		return nil, err
	}
	b := &epollBackend{t: t, in: in, events: make([]epoll.Event, batch), enters: enters}
	if b.wakeup, err = sys.EventFD(); err == nil {
		if errno := in.Add(b.wakeup.Int(), uint32(Read)|epoll.EdgeTriggered, wakeData); errno != 0 {
			err = sys.Error("epoll_ctl", errno)
		}
	}
	if err != nil {
		_ = b.close()
		return nil, err
	}
	return b, nil
}

func (b *epollBackend) add(fd int, e *entry) syscall.Errno {
	errno := b.in.Add(fd, epollMask(e), epollData(fd, e))
	if errno == syscall.EEXIST {
		// The file was registered under this number, the number was closed and
		// removed, which epoll cannot do then, and has come back to the file.
		errno = b.in.Modify(fd, epollMask(e), epollData(fd, e))
	}
	return errno
}

func (b *epollBackend) modify(fd int, e *entry, _ Trigger) syscall.Errno {
	return b.in.Modify(fd, epollMask(e), epollData(fd, e))
}

// remove ignores errors. A closed file has removed itself, unless another
// descriptor of it is open.
func (b *epollBackend) remove(fd int, _ *entry) {
	if b.in.Remove(fd) != 0 {
		b.closedFiles = true
	}
}

func (b *epollBackend) prepare() error {
	if b.renew && b.n == 0 {
		b.renewInstance()
	}
	return nil
}

// renewInstance registers everything with a new instance. If no descriptor or memory is
// available, the next turn tries again.
func (b *epollBackend) renewInstance() {
	in, err := epoll.Open()
	if err != nil {
		return
	}
	if in.Add(b.wakeup.Int(), uint32(Read)|epoll.EdgeTriggered, wakeData) != 0 {
		_ = in.Close()
		return
	}
	for fd := range b.t.entries {
		e := &b.t.entries[fd]
		if !e.on || e.gone {
			continue
		}
		switch in.Add(fd, epollMask(e), epollData(fd, e)) {
		case 0:
		case syscall.ENOMEM, syscall.ENOSPC:
			_ = in.Close()
			return
		default: // closed, or replaced by a file that cannot be polled
			e.gone = true
		}
	}
	_ = b.in.Close()
	b.in, b.renew, b.closedFiles = in, false, false
}

// wait keeps the events in b.events for collect. Events that were not collected end it at once.
func (b *epollBackend) wait(timeout time.Duration) error {
	if b.n > 0 {
		return nil
	}
	var end time.Time
	if timeout > 0 {
		end = time.Now().Add(timeout)
	}
	for {
		n, errno := b.in.Wait(b.events, timeout)
		b.enters.Add(1)
		switch errno {
		case 0:
			b.n = n
			return nil
		case syscall.EINTR:
			if timeout > 0 {
				timeout = max(time.Until(end), 0)
			}
		default:
			return sys.Error("epoll_wait", errno)
		}
	}
}

// collect reports the events to the table. A stale one, or one of a file that was moved to another
// descriptor, may show that epoll still holds a closed file: the instance is then renewed.
func (b *epollBackend) collect() {
	for i := range b.events[:b.n] {
		ev := &b.events[i]
		data := epoll.Data(ev)
		if data == wakeData {
			continue
		}
		fd := int32(uint32(data))
		switch e := b.t.report(fd, uint32(data>>32), Events(ev.Events)); {
		case e == nil:
			b.renew = b.renew || b.closedFiles
		case e.recheck() && b.moved(int(fd), e):
			e.gone, e.found = true, 0
			b.renew = true
		}
	}
	b.n = 0
}

// moved reports whether the number of a registration now names another file, or none. The
// check registers the number again, which has no effect if nothing has changed.
func (b *epollBackend) moved(fd int, e *entry) bool {
	errno := b.in.Modify(fd, epollMask(e), epollData(fd, e))
	return errno == syscall.EBADF || errno == syscall.ENOENT
}

func (b *epollBackend) wake() { sys.Signal(b.wakeup) }

func (b *epollBackend) close() error {
	err := b.in.Close()
	if b.wakeup != nil {
		if again := b.wakeup.Close(); err == nil {
			err = again
		}
	}
	return err
}

// epollData returns descriptor and generation for the kernel to hand back.
func epollData(fd int, e *entry) uint64 { return uint64(uint32(fd)) | uint64(e.gen)<<32 }

func epollMask(e *entry) uint32 {
	switch e.mode {
	case Edge:
		return uint32(e.interest) | epoll.EdgeTriggered
	case OneShot:
		return uint32(e.interest) | epoll.OneShot
	}
	return uint32(e.interest)
}
