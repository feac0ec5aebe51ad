// SPDX-License-Identifier: MIT

package kernelsim

import (
	"sync"
	"syscall"
)

// Parker calls a function after completions have arrived. A call comes soon after the completions,
// may be for several of them, and may be spurious.
type Parker struct {
	r         *Ring
	cond      *sync.Cond
	signalled bool
	stopping  bool
	failing   bool
	signals   uint64
	done      chan struct{}
}

// Parker returns the ring's parker.
func (r *Ring) Parker() *Parker {
	r.k.mu.Lock()
	defer r.k.mu.Unlock()
	r.park = &Parker{r: r, cond: sync.NewCond(&r.k.mu), done: make(chan struct{})}
	return r.park
}

// Start calls ready on a goroutine of its own after completions. It calls failed once if it cannot
// continue.
func (p *Parker) Start(ready func(), failed func(error)) error {
	go p.run(ready, failed)
	return nil
}

func (p *Parker) run(ready func(), failed func(error)) {
	defer close(p.done)
	k := p.r.k
	for {
		k.mu.Lock()
		for !p.signalled && !p.stopping && !p.failing {
			p.cond.Wait()
		}
		stop, failing := p.stopping, p.failing
		p.signalled = false
		if failing && !stop {
			p.r.unparked = true
			k.trace.add(event{what: "unparked", ring: p.r.id})
			k.holdAll(p.r)
		}
		k.mu.Unlock()
		switch {
		case stop:
			return
		case failing:
			failed(syscall.EIO)
			return
		}
		ready()
	}
}

// signal notes that completions have arrived. The caller holds mu.
func (p *Parker) signal() {
	k := p.r.k
	d := k.dice(ofWake+uint64(p.r.id)<<33, p.signals)
	p.signals++
	call := func() {
		p.signalled = true
		p.failing = p.failing || d.hit(k.o.Faults.Unparked) || k.o.Plan.Park != nil && k.o.Plan.Park()
		p.cond.Signal()
	}
	switch {
	case k.loseWake(call):
	case d.hit(k.o.Faults.LateWake) || k.o.Plan.Wake != nil && k.o.Plan.Wake():
		k.trace.count("late wake-up")
		if d.IntN(2) == 0 {
			k.later(d.briefly(), call)
		} else {
			k.soon(d.IntN(30), call)
		}
	default:
		call()
	}
}

// Stop ends the calls and waits for the last one.
func (p *Parker) Stop() error {
	p.r.k.mu.Lock()
	p.stopping = true
	p.cond.Signal()
	p.r.k.mu.Unlock()
	<-p.done
	return nil
}
