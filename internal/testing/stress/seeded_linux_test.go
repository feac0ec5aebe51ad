// SPDX-License-Identifier: MIT

package stress

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"

	"github.com/ringside-io/ringside/internal/ringhook"
	"github.com/ringside-io/ringside/internal/testing/kernelsim"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/reactor"
	"github.com/ringside-io/ringside/ufile"
	"github.com/ringside-io/ringside/uring"
	"github.com/ringside-io/ringside/watch"
)

// seededBug is a mistake that a library like this one could make, and the failure that it
// must cause.
type seededBug struct {
	name   string
	kind   string         // kind of mistake that a test would find; see TestSeededKinds
	bugs   kernelsim.Bugs // a bug of the kernel
	inject func() injected
	watch  func(*watch.Loop) registry // in an environment on the kernel
	shows  string                     // part of a problem's text, unless a goroutine waits for ever
}

var allSeeded = []seededBug{
	{name: "dropped completion", kind: dropped, bugs: kernelsim.Bugs{Drop: 3, Untagged: true}},
	{name: "lost wake-up", kind: lostWake, bugs: kernelsim.Bugs{LoseWakes: 3}},
	{name: "completion delivered to the slot's next operation", inject: func() injected {
		return injected{ring: func(r *kernelsim.Ring) ringhook.Ring { return &secondhand{Ring: r} }}
	}, shows: "poll answers"},
	{name: "callback called twice", inject: func() injected {
		return injected{engine: func(_ *simEnv, e Engine) Engine { return &twice{Engine: e} }}
	}, shows: "called again"},
	{name: "buffer used again too early", kind: freed, inject: func() injected {
		return injected{engine: func(w *simEnv, e Engine) Engine { return &hasty{Engine: e} }}
	}, shows: "block"},
	{name: "stale descriptor", kind: staleFD, inject: func() injected {
		return injected{file: func(f *ufile.File) File { return &stale{File: f, fd: int(f.Fd())} }}
	}, shows: "which no write put there"},
	{name: "leaked slot", kind: leaked, inject: func() injected {
		return injected{engine: func(w *simEnv, e Engine) Engine { return &leaky{Engine: e, w: w} }}
	}, shows: "in flight"},
	{name: "event delivered to the number's next file", kind: staleFD, watch: func(l *watch.Loop) registry {
		return &byNumber{Loop: l, calls: make(map[int]func(watch.Events))}
	}, shows: "not touched"},
}

// Kinds of mistakes. The power-cut tests of packages ufile and sqlitevfs find missing
// syncs.
const (
	freed    = "freed buffer"
	dropped  = "dropped completion"
	lostWake = "lost wake-up"
	staleFD  = "stale descriptor"
	leaked   = "leaked slot"
)

// TestSeededKinds checks that a bug of each kind is seeded.
func TestSeededKinds(t *testing.T) {
	for _, kind := range []string{freed, dropped, lostWake, staleFD, leaked} {
		if !slices.ContainsFunc(allSeeded, func(p seededBug) bool { return p.kind == kind }) {
			t.Errorf("no bug of the kind is seeded: %s", kind)
		}
	}
}

// secondhand delivers a completion a second time, to the next poll in the same slot.
// Generations prevent that.
type secondhand struct {
	*kernelsim.Ring
	mu      sync.Mutex
	entries []*uring.SQE
	over    map[uint32]int32 // results of transfers by their slot
	owed    []uring.CQE
}

func (r *secondhand) SQE() *uring.SQE {
	e := r.Ring.SQE()
	if e != nil {
		r.entries = append(r.entries, e)
	}
	return e
}

// look examines the entries that are submitted.
func (r *secondhand) look() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.entries {
		slot := uint32(e.Raw().UserData)
		if res, ok := r.over[slot]; ok && uring.Op(e.Raw().Opcode) == uring.OpPollAdd {
			r.owed = append(r.owed, uring.CQE{UserData: e.Raw().UserData, Res: res})
			delete(r.over, slot)
		}
	}
	r.entries = r.entries[:0]
}

func (r *secondhand) Submit() (int, error) {
	r.look()
	return r.Ring.Submit()
}

func (r *secondhand) SubmitNoWait() (int, error) {
	r.look()
	return r.Ring.SubmitNoWait()
}

func (r *secondhand) Reap(dst []uring.CQE) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := copy(dst, r.owed)
	r.owed = r.owed[n:]
	got := r.Ring.Reap(dst[n:])
	for _, c := range dst[n : n+got] {
		if c.Res >= Block {
			if r.over == nil {
				r.over = make(map[uint32]int32)
			}
			r.over[uint32(c.UserData)] = c.Res
		}
	}
	return n + got
}

// twice calls the second callback twice.
type twice struct {
	Engine
	n atomic.Int32
}

func (e *twice) Queue(op *reactor.Op, fn func(reactor.Result)) (reactor.ID, error) {
	again := e.n.Add(1) == 2
	return e.Engine.Queue(op, func(res reactor.Result) {
		fn(res)
		if again {
			fn(res)
		}
	})
}

// hasty reports that each read but the first is done when it has begun: the bytes arrive
// later.
type hasty struct {
	Engine
	n atomic.Int32
}

func (e *hasty) Do(op *reactor.Op) reactor.Result {
	if len(op.Buf) == 0 || uring.Op(op.SQE.Raw().Opcode) != uring.OpRead || e.n.Add(1) < 2 {
		return e.Engine.Do(op)
	}
	late := reactor.Op{Buf: make([]byte, len(op.Buf)), Bytes: len(op.Buf)}
	late.SQE.Read(uring.Fd(int(op.SQE.Raw().Fd)), late.Buf, int64(op.SQE.Raw().Off))
	to := op.Buf
	if _, err := e.Queue(&late, func(reactor.Result) { copyUnseen(to, late.Buf) }); err != nil {
		return e.Engine.Do(op)
	}
	return reactor.Result{Res: int32(len(op.Buf))}
}

// copyUnseen copies as the kernel does, unseen by the race detector, which would otherwise
// be the first to report the bug.
func copyUnseen(to, from []byte) {
	var pipe [2]int
	if syscall.Pipe2(pipe[:], syscall.O_CLOEXEC) != nil {
		return
	}
	_, _ = syscall.Write(pipe[1], from)
	_, _, _ = syscall.Syscall(syscall.SYS_READ, uintptr(pipe[0]), uintptr(unsafe.Pointer(&to[0])), uintptr(len(to)))
	_, _ = syscall.Close(pipe[0]), syscall.Close(pipe[1])
}

// stale uses the number of its descriptor after the file was closed, when the number may
// belong to another file.
type stale struct {
	*ufile.File
	fd int
}

func (f *stale) ReadAt(p []byte, off int64) (int, error) {
	n := kernelsim.Files{}.Read(f.fd, p, off)
	if n < 0 {
		return f.File.ReadAt(p, off)
	}
	return int(n), nil
}

// leaky starts an operation besides the second one and loses track of it.
type leaky struct {
	Engine
	w *simEnv
	n atomic.Int32
}

func (e *leaky) Do(op *reactor.Op) reactor.Result {
	if e.n.Add(1) == 2 {
		lost := new(reactor.Op)
		lost.SQE.PollAdd(uring.Fd(e.w.k.Pipe()), 1)
		_, _ = e.Queue(lost, nil)
	}
	return e.Engine.Do(op)
}

// byNumber looks up the callback by the descriptor's number when it calls it. Generations
// prevent that.
type byNumber struct {
	*watch.Loop
	calls map[int]func(watch.Events)
}

func (b *byNumber) Add(fd int, interest watch.Events, mode watch.Trigger, f func(watch.Events)) error {
	b.calls[fd] = f
	return b.Loop.Add(fd, interest, mode, func(found watch.Events) {
		_ = b.Post(func() {
			if f := b.calls[fd]; f != nil {
				f(found)
			}
		})
	})
}

func (b *byNumber) Remove(fd int) error {
	delete(b.calls, fd)
	return b.Loop.Remove(fd)
}

// TestSeededBugs seeds each mistake. It must be found, and the scenario must shrink to a
// few steps. The text of those steps must show it too, and without the mistake they must
// pass.
// Promise: tests/dropped-completion-found
// Promise: tests/freed-buffer-found
// Promise: tests/leaked-slot-found
// Promise: tests/lost-wake-found
// Promise: tests/stale-descriptor-found
func TestSeededBugs(t *testing.T) {
	ringtest.NeedRing(t)
	if testing.Short() {
		t.Skip("checks the simulator, not the product: not with -short")
	}
	for _, p := range allSeeded {
		t.Run(p.name, func(t *testing.T) {
			fails := func(s *Scenario) bool { return p.noticed(t, s) }
			s := p.scenario(t, fails)
			small := Shrink(s, 400, func(s *Scenario) bool {
				for range 3 { // the order of goroutines may decide
					if fails(s) {
						return true
					}
				}
				return false
			})
			t.Logf("%d steps of %d workers became %d:\n%v", s.Steps(), len(s.Workers), small.Steps(), small)
			if small.Steps() > 12 {
				t.Errorf("the scenario shrank to %d steps only", small.Steps())
			}
			again, err := Parse(strings.NewReader(small.String()))
			if err != nil {
				t.Fatal(err)
			}
			for tries := 0; !fails(again); tries++ {
				if tries == 100 {
					t.Fatal("the text of the scenario does not show the mistake")
				}
			}
			sound := seededBug{name: p.name}
			if p.watch != nil {
				sound.watch = func(l *watch.Loop) registry { return l }
			}
			for _, s := range []*Scenario{s, small} {
				if r := sound.run(t, s); r.Failed() {
					t.Errorf("without the mistake: %s\n%s", strings.Join(r.Problems, "\n"), r.Hung)
				}
			}
		})
	}
}

// scenario returns a scenario that shows the mistake.
func (p *seededBug) scenario(t *testing.T, fails func(*Scenario) bool) *Scenario {
	for seed := range uint64(20) {
		s := Generate("sim", seed, Size{30, 10}, func(*rand.Rand) Settings {
			return Settings{"delay": 0.7, "rings": 1, "without-append": 1}
		})
		if p.watch != nil {
			s = Generate("kernel", seed, Size{10, 10}, watchSettings)
		}
		if fails(s) {
			return s
		}
	}
	t.Fatal("not found")
	return nil
}

// watchSettings are the settings of an environment on the kernel that opens little but the
// loop.
func watchSettings(rng *rand.Rand) Settings {
	s := KernelSettings(rng)
	s[NoRings] = 1
	epoll := s["epoll"]
	s.Only("watch")
	s["epoll"] = epoll
	return s
}

// run runs a scenario with the mistake.
func (p *seededBug) run(t *testing.T, s *Scenario) *Report {
	if p.watch != nil {
		return runKernelWith(t, s, func(w *KernelEnv) Environment {
			w.registry = p.watch(w.loop)
			return w
		})
	}
	what := injected{bugs: p.bugs}
	if p.inject != nil {
		what = p.inject()
	}
	return runSim(t, s, what)
}

// noticed reports whether a scenario with the mistake fails as expected.
func (p *seededBug) noticed(t *testing.T, s *Scenario) bool {
	r := p.run(t, s)
	if !r.Failed() {
		return false
	}
	if p.bugs != (kernelsim.Bugs{}) {
		return r.Hung != ""
	}
	return strings.Contains(strings.Join(r.Problems, "\n"), p.shows)
}
