// SPDX-License-Identifier: MIT

//go:build race

package reactor

import (
	"sync"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/uring"
)

// raceModel shows the race detector what the kernel does. When an operation takes its
// buffer, a goroutine of the model reads the buffer or writes to it, as the kernel will
// at some time before the completion. That access is ordered after the start of the
// operation and before its end, and with nothing else. A goroutine that uses the buffer
// in between races with it, and the detector reports that.
//
// The goroutine is reached through channels that the detector does not see. They would
// add an order that the kernel does not provide.
type raceModel struct {
	mu   sync.Mutex
	todo chan access
	done chan struct{}

	// The detector must not see that mu orders the accesses. It must see that stop
	// comes after some of them and before the others.
	accessed, stopped raceKey
}

// access is one access to memory; key orders it.
type access struct {
	p     []byte
	write bool
	key   *raceKey
}

// raceKey is an address by which the detector knows an order.
type raceKey struct{ _ [8]byte }

func (m *raceModel) start() {
	m.todo, m.done = make(chan access), make(chan struct{})
	go m.run(m.todo)
}

func (m *raceModel) stop() {
	m.mu.Lock()
	sys.RaceAcquire(&m.accessed)
	close(m.todo)
	m.todo = nil
	sys.RaceRelease(&m.stopped)
	m.mu.Unlock()
	<-m.done
}

// run makes the kernel's accesses for the race detector, which sees nothing else of this goroutine.
func (m *raceModel) run(todo <-chan access) {
	sys.RaceBlind()
	for a := range todo {
		sys.RaceSee()
		sys.RaceAcquire(a.key)
		if a.write {
			sys.RaceWrite(a.p)
		} else {
			sys.RaceRead(a.p)
		}
		sys.RaceRelease(a.key)
		sys.RaceBlind()
		m.done <- struct{}{}
	}
	sys.RaceSee()
	close(m.done)
}

// access makes the goroutine access memory, after what the caller did to it.
func (m *raceModel) access(p []byte, write bool, key *raceKey) {
	sys.RaceRelease(key)
	sys.RaceBlind()
	m.mu.Lock()
	sys.RaceSee()
	sys.RaceAcquire(&m.stopped)
	sys.RaceBlind()
	if m.todo != nil { // nothing starts on a closed loop
		m.todo <- access{p, write, key}
		<-m.done
	}
	sys.RaceSee()
	sys.RaceRelease(&m.accessed)
	sys.RaceBlind()
	m.mu.Unlock()
	sys.RaceSee()
}

// raceTake is called when an operation takes its memory. A simulated kernel accesses
// the memory itself.
func (l *loop) raceTake(v *entry) {
	if _, real := l.ring.(kernelRing); !real {
		return
	}
	if p, write := singleBuffer(&v.op); p != nil {
		l.race.access(p, write, &v.key)
		return
	}
	bufs, write := vectorBuffers(&v.op)
	for _, p := range bufs {
		l.race.access(p, write, &v.key)
	}
}

// raceGiveBack is called when an operation returns its memory to the caller.
func (v *entry) raceGiveBack() { sys.RaceAcquire(&v.key) }

// sendVec is the flag of a send whose address points to a vector.
var sendVec = new(uring.SQE).SendVec(uring.Fd(0), nil, 0).Raw().Ioprio

// vectorBuffers returns the data of a vector or message that an operation reads or
// writes. The structures themselves are read at submission.
func vectorBuffers(o *Op) (bufs [][]byte, write bool) {
	e := o.SQE.Raw()
	switch op := uring.Op(e.Opcode); op {
	case uring.OpReadv, uring.OpWritev:
		return sys.RaceVector(e.Addr, e.Len), op == uring.OpReadv
	case uring.OpSend:
		if e.Ioprio&sendVec != 0 {
			return sys.RaceVector(e.Addr, e.Len), false
		}
	case uring.OpSendMsg, uring.OpSendMsgZC:
		return sys.RaceMessage(e.Addr), false
	case uring.OpRecvMsg:
		if e.Flags&uint8(uring.SQEBufferSelect) == 0 {
			return sys.RaceMessage(e.Addr), true
		}
	}
	return nil, false
}

// singleBuffer returns the part of Buf that an operation with one buffer uses. It
// returns nil for other memory: Buf may be kept for another reason.
func singleBuffer(o *Op) (p []byte, write bool) {
	e := o.SQE.Raw()
	from := e.Addr - sys.SliceAddr(o.Buf)
	if e.Addr == 0 || from > uint64(len(o.Buf)) || uint64(e.Len) > uint64(len(o.Buf))-from {
		return nil, false
	}
	switch uring.Op(e.Opcode) {
	case uring.OpRead, uring.OpRecv:
		write = true
	case uring.OpSend, uring.OpSendZC:
		if e.Ioprio&sendVec != 0 {
			return nil, false
		}
	case uring.OpWrite:
	default:
		return nil, false
	}
	return o.Buf[from : from+uint64(e.Len)], write
}
