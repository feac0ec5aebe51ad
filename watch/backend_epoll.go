// SPDX-License-Identifier: MIT

package watch

import (
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
	bell   *sys.FD // an eventfd, never read: each signal is an edge
	events []epoll.Event
	n      int // events waiting for collect
}

func newEpoll(t *table, batch int) (*epollBackend, error) {
	in, err := epoll.Open()
	if err != nil {
		return nil, err
	}
	b := &epollBackend{t: t, in: in, events: make([]epoll.Event, batch)}
	if b.bell, err = sys.EventFD(); err == nil {
		if errno := in.Add(b.bell.Int(), uint32(Read)|epoll.EdgeTriggered, wakeData); errno != 0 {
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

// remove ignores errors: a closed file has removed itself.
func (b *epollBackend) remove(fd int, _ *entry) { b.in.Remove(fd) }

func (b *epollBackend) prepare() error { return nil }

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

func (b *epollBackend) collect() {
	for i := range b.events[:b.n] {
		ev := &b.events[i]
		data := epoll.Data(ev)
		b.t.report(int32(uint32(data)), uint32(data>>32), Events(ev.Events))
	}
	b.n = 0
}

func (b *epollBackend) wake() { sys.Signal(b.bell) }

func (b *epollBackend) close() error {
	err := b.in.Close()
	if b.bell != nil {
		if again := b.bell.Close(); err == nil {
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
