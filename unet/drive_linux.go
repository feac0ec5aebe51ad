// SPDX-License-Identifier: MIT

package unet

import (
	"runtime"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/epoll"
)

// drive is the driver's goroutine.
func (l *loop) drive() {
	for !l.stopping.Load() {
		if n := l.pass(); n > 0 {
			l.spin.found(n)
			l.settle()
			continue
		}
		if l.starved.Load() {
			l.standBack()
		} else if !l.search() {
			l.sleep()
		}
	}
}

// settle lets those run that were woken. When many of them have not begun by the
// time the driver runs again, they are stuck behind something that computes, or
// whose processor was taken away. As long as the driver is ready no other P
// takes over their queue, so it waits until all have begun.
func (l *loop) settle() {
	begin := time.Now()
	runtime.Gosched()
	if l.woken.Load() > fewEvents+1 && !l.starved.Load() {
		if l.woken.Add(-1) > 0 {
			<-l.settled
		}
		l.woken.Store(1)
	}
	l.stoodBack(time.Since(begin))
}

// standBack lets other goroutines run.
func (l *loop) standBack() {
	begin := time.Now()
	runtime.Gosched()
	l.stoodBack(time.Since(begin))
}

// stoodBack notes how long the driver let others run. When that is longer than
// the goroutines explain that the driver has woken, every P computes: the
// scheduler gives each goroutine a P for 10 ms, and the driver, which is one of
// many, comes last. The loop is starved when that happens a few times in a row
// (once is no more than another process that had the processor), until the driver
// was back soon several times in a row. A starved driver does not sleep, because
// the netpoller, which would wake it, is asked every 10 ms only and puts it last
// again.
func (l *loop) stoodBack(d time.Duration) {
	if long := d > longAway; long != l.wasLong {
		l.wasLong, l.inARow = long, 0
	}
	l.inARow++
	switch {
	case l.wasLong && l.inARow >= longInARow:
		l.starved.Store(true)
	case !l.wasLong && l.inARow >= soonInARow && l.starved.Load():
		l.starved.Store(false)
	}
}

const (
	longAway   = 4 * time.Millisecond
	longInARow = 3
	soonInARow = 8
)

// help does the work of a driver that is starved. A call that is about to wait
// does it, whose P would be given to a goroutine that computes next.
// When a pass is under way, which may have looked too early, its goroutine makes
// another one.
func (l *loop) help() {
	l.wanted.Store(true)
	for l.wanted.Load() && l.passing.TryLock() {
		l.wanted.Store(false)
		l.driving = false
		l.passLocked()
		l.passing.Unlock()
	}
}

// begun is told by a reader that was given its data that it runs.
func (l *loop) begun() {
	if l.woken.Add(-1) == 0 {
		l.settled <- struct{}{}
	}
}

// pass serves what is ready now and returns how many events there were.
func (l *loop) pass() int {
	l.passing.Lock()
	l.driving = true
	n := l.passLocked()
	l.passing.Unlock()
	if l.wanted.Load() {
		l.help()
	}
	return n
}

func (l *loop) passLocked() int {
	n, errno := l.poll.PollSockets(l.events)
	if errno != 0 && errno != syscall.EINTR {
		panic("unet: epoll_pwait: " + errno.Error()) // our own descriptor and memory
	}
	if n == 0 {
		return 0
	}
	l.collect(l.events[:n])
	l.receive()
	return n
}

// collect tells the sockets what happened to them and gathers the receives of
// those who wait.
func (l *loop) collect(events []epoll.Event) {
	l.table.mu.Lock()
	defer l.table.mu.Unlock()
	for i := range events {
		if s := l.table.find(epoll.Data(&events[i])); s != nil {
			l.notice(s, events[i].Events)
		}
	}
}

func (l *loop) notice(s *sock, events uint32) {
	const failed = syscall.EPOLLERR | syscall.EPOLLHUP
	if events&(failed|syscall.EPOLLRDHUP|syscall.EPOLLPRI) != 0 {
		s.wary.Store(true)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if events&(syscall.EPOLLIN|syscall.EPOLLRDHUP|failed) != 0 {
		if h := &s.rd; h.state == parked && s.in.buf != nil {
			h.state = taken
			l.batch = append(l.batch, receive{s, s.in.buf})
		} else {
			if s.datagram && !s.muted && h.state == idle && h.ready.Load() {
				s.mute() // the reader knows already
			}
			h.becomeReady()
		}
	}
	if events&(syscall.EPOLLOUT|failed) != 0 {
		s.wr.becomeReady()
	}
}

// becomeReady notes readiness and wakes who waits for it. The caller holds the
// socket's mu.
func (h *half) becomeReady() {
	h.ready.Store(true)
	h.interrupt()
}

// sleep waits in the netpoller until something happens.
func (l *loop) sleep() {
	if errno := l.gate.Modify(l.poll.FD(), syscall.EPOLLIN|epoll.OneShot, 0); errno != 0 {
		panic("unet: epoll_ctl: " + errno.Error()) // our own descriptors
	}
	_ = l.gatePoller.Wait(l.gateTry) // fails when the loop is stopped
}

// search looks for work for a little while and says whether it found some,
// which it has served.
func (l *loop) search() bool {
	if !l.spin.worthwhile() {
		return false
	}
	for start := time.Now(); ; {
		l.standBack()
		if n := l.pass(); n > 0 {
			l.spin.hit(n)
			return true
		}
		if time.Since(start) > l.spin.limit {
			l.spin.missed()
			return false
		}
	}
}

// spinner decides whether to look for more work before sleeping. It pays when
// there is little to do and the answer of a peer is near.
type spinner struct {
	limit time.Duration
	small bool // the last pass had few events
	skip  int  // how many times not to spin
	pause int  // how many times not to spin after the next miss
}

// fewEvents is the largest pass after which spinning is tried: after a larger
// one there are goroutines to run. As many readers may be slow to run before the
// driver waits for them.
const fewEvents = 4

const longestPause = 64

func (s *spinner) worthwhile() bool {
	if s.limit <= 0 || !s.small {
		return false
	}
	if s.skip > 0 {
		s.skip--
		return false
	}
	return true
}

// found notes the size of a pass. It does not forgive misses: the events of a
// slow trickle come too late for any spinning.
func (s *spinner) found(n int) { s.small = n <= fewEvents }

// hit is found during a spin.
func (s *spinner) hit(n int) {
	s.found(n)
	s.pause = 0
}

func (s *spinner) missed() {
	s.pause = min(2*s.pause+1, longestPause)
	s.skip = s.pause
}
