// SPDX-License-Identifier: MIT

//go:build race

package reactor

import (
	"sync"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/uring"
)

// shadow stands for the kernel in the eyes of the race detector. When an
// operation takes its buffer, a goroutine of the shadow's own reads the buffer
// or writes to it, as the kernel will at some time until the completion. What
// it does is ordered after the start of the operation and before its end, and
// with nothing else: who touches the buffer in between, on whatever goroutine,
// is in a race with it, and is reported.
//
// The goroutine is reached through channels that the detector is blind to, as
// they would order what the kernel does not.
type shadow struct {
	mu   sync.Mutex
	todo chan touch
	done chan struct{}

	// The lock orders touches, which the detector must not see, but it must see
	// that stop comes after some of them and before the others.
	touched, stopped shadowKey
}

// touch is what the goroutine does to some memory; key is what orders it.
type touch struct {
	p     []byte
	write bool
	key   *shadowKey
}

// shadowKey is a place by which the detector knows an order.
type shadowKey struct{ _ [8]byte }

func (s *shadow) start() {
	s.todo, s.done = make(chan touch), make(chan struct{})
	go s.run(s.todo)
}

func (s *shadow) stop() {
	s.mu.Lock()
	sys.RaceAcquire(&s.touched)
	close(s.todo)
	s.todo = nil
	sys.RaceRelease(&s.stopped)
	s.mu.Unlock()
	<-s.done
}

func (s *shadow) run(todo <-chan touch) {
	sys.RaceBlind()
	for t := range todo {
		sys.RaceSee()
		sys.RaceAcquire(t.key)
		if t.write {
			sys.RaceWrite(t.p)
		} else {
			sys.RaceRead(t.p)
		}
		sys.RaceRelease(t.key)
		sys.RaceBlind()
		s.done <- struct{}{}
	}
	sys.RaceSee()
	close(s.done)
}

// touch has the goroutine touch memory, after what the caller did to it.
func (s *shadow) touch(p []byte, write bool, key *shadowKey) {
	sys.RaceRelease(key)
	sys.RaceBlind()
	s.mu.Lock()
	sys.RaceSee()
	sys.RaceAcquire(&s.stopped)
	sys.RaceBlind()
	if s.todo != nil { // nothing starts on a closed loop
		s.todo <- touch{p, write, key}
		<-s.done
	}
	sys.RaceSee()
	sys.RaceRelease(&s.touched)
	sys.RaceBlind()
	s.mu.Unlock()
	sys.RaceSee()
}

// took is told that an operation has its buffers. A simulated kernel touches the
// memory itself.
func (l *loop) took(v *entry) {
	if _, real := l.ring.(*kernelRing); !real {
		return
	}
	if p, write := within(&v.op); p != nil {
		l.shadow.touch(p, write, &v.key)
		return
	}
	bufs, write := scattered(&v.op)
	for _, p := range bufs {
		l.shadow.touch(p, write, &v.key)
	}
}

// vectorized marks a send whose address is that of a vector.
var vectorized = new(uring.SQE).SendVec(uring.Fd(0), nil, 0).Raw().Ioprio

// scattered returns the data of a vector or message that an operation reads, or
// writes to: not the structures, which are read at submission.
func scattered(o *Op) (bufs [][]byte, write bool) {
	e := o.SQE.Raw()
	switch op := uring.Op(e.Opcode); op {
	case uring.OpReadv, uring.OpReadvFixed, uring.OpWritev, uring.OpWritevFixed:
		return sys.RaceVector(e.Addr, e.Len), op == uring.OpReadv || op == uring.OpReadvFixed
	case uring.OpSend:
		if e.Ioprio&vectorized != 0 {
			return sys.RaceVector(e.Addr, e.Len), false
		}
	case uring.OpSendMsg, uring.OpSendMsgZC:
		return sys.RaceMessage(e.Addr), false
	case uring.OpRecvMsg:
		if e.Flags&uint8(uring.SQEBufferSelect) == 0 { // else what arrives is in a buffer of the group
			return sys.RaceMessage(e.Addr), true
		}
	}
	return nil, false
}

// within returns the part of Buf that an operation on one buffer names, nothing
// when it names other memory: Buf may be kept for another reason.
func within(o *Op) (p []byte, write bool) {
	e := o.SQE.Raw()
	from := e.Addr - sys.SliceAddr(o.Buf)
	if e.Addr == 0 || from > uint64(len(o.Buf)) || uint64(e.Len) > uint64(len(o.Buf))-from {
		return nil, false
	}
	switch uring.Op(e.Opcode) {
	case uring.OpRead, uring.OpReadFixed, uring.OpRecv:
		write = true
	case uring.OpSend, uring.OpSendZC:
		if e.Ioprio&vectorized != 0 {
			return nil, false
		}
	case uring.OpWrite, uring.OpWriteFixed:
	default:
		return nil, false
	}
	return o.Buf[from : from+uint64(e.Len)], write
}

// gave is told that an operation gives its buffer back.
func (v *entry) gave() { sys.RaceAcquire(&v.key) }

// tookBack is told that the kernel gets a buffer of a group. Who still looks at
// what was in it is reported, or sees what never arrived. The caller holds mu.
func (s *store) tookBack(id uint16) {
	if _, real := s.loop.ring.(*kernelRing); !real {
		return
	}
	size := len(s.mem) / len(s.lent)
	p := s.mem[int(id)*size:][:size]
	sys.Poison(p)
	s.loop.shadow.touch(p, true, &s.key)
}

// gave is told that a buffer of the group arrives.
func (s *store) gave() { sys.RaceAcquire(&s.key) }
