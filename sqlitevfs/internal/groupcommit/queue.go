// SPDX-License-Identifier: MIT

// Package groupcommit lets goroutines share a slow step, such as a durable write. Each
// goroutine adds a [Request] to a [Queue]. The first that finds no leader leads: it
// takes the requests that wait, does the step for all of them, wakes them, and hands
// the lead to the request at the head of the queue. The queue starts no goroutine and no
// timer.
//
// The queue has no lock: its owner's mutex guards it together with the owner's state.
// The comment of each method states whether the caller holds that mutex.
package groupcommit

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Request is one goroutine's call. Its Value belongs to the goroutine until Add, to the
// leader that takes it until Retire, and then to the goroutine again.
type Request[T any] struct {
	Value T
	Err   error // set by Retire

	next  *Request[T]
	state atomic.Int32          // one of the states below
	round atomic.Pointer[round] // that it waits for; nil if it has a wake of its own
	wake  chan struct{}         // one token: done, or the lead
}

// A round is the requests that were added while a group was served. They mostly are the next group,
// and one close wakes them all: a send to each of them would cost the leader much more. The first
// of them, which leads that group, has a channel of its own, so that it alone is woken.
type round struct{ over chan struct{} }

// States of a request.
const (
	waiting int32 = iota // in the queue, or in a group
	leader               // at the head of the queue, chosen to lead
	done                 // its group was served
)

// Next returns the request behind r in its group, nil at the end.
func (r *Request[T]) Next() *Request[T] { return r.next }

// list is a list of requests.
type list[T any] struct{ head, tail *Request[T] }

func (l *list[T]) push(r *Request[T]) {
	if l.head == nil {
		l.head = r
	} else {
		l.tail.next = r
	}
	l.tail = r
}

// pop removes the first request and returns it.
func (l *list[T]) pop() *Request[T] {
	r := l.head
	l.head, r.next = r.next, nil
	return r
}

// Group holds the requests that a leader has taken. The zero value is empty.
type Group[T any] struct {
	list list[T]
	n    int
}

// First returns the first request, nil in an empty group.
func (g *Group[T]) First() *Request[T] { return g.list.head }

// Len returns the number of requests.
func (g *Group[T]) Len() int { return g.n }

// Queue holds the requests that wait. The zero value is empty.
type Queue[T any] struct {
	// MaxIdle is how many times in a row Gather may yield without a new request. 0 means
	// 2 (docs/appendlog.md has the measurement).
	MaxIdle int
	// MaxWait limits the time that Gather takes: no further yield begins after it. A long
	// yield means that computing goroutines occupy the processors. 0 means a millisecond.
	MaxWait time.Duration

	list     list[T]
	round    *round // of the requests that are added now; nil before the second of them
	leading  bool
	queued   atomic.Int64
	expected int64 // requests that are probably in progress at a time; belongs to the leader

	spare struct {
		sync.Mutex
		list *Request[T]
		n    int
	}
}

// maxSpare bounds how many requests are kept for reuse.
const maxSpare = 4096

// New returns a request. If it was freed before, it has its old Value. No lock is needed.
// The queue keeps the freed requests itself, because sync.Pool drops them at garbage
// collections.
func (q *Queue[T]) New() *Request[T] {
	q.spare.Lock()
	r := q.spare.list
	if r != nil {
		q.spare.list = r.next
		q.spare.n--
	}
	q.spare.Unlock()
	if r == nil {
		return &Request[T]{wake: make(chan struct{}, 1)}
	}
	r.next, r.Err = nil, nil
	r.state.Store(waiting)
	r.round.Store(nil)
	return r
}

// Free keeps a request for New. The caller first clears the parts of Value that are not
// to be kept. No lock is needed.
func (q *Queue[T]) Free(r *Request[T]) {
	q.spare.Lock()
	defer q.spare.Unlock()
	if q.spare.n < maxSpare {
		r.next = q.spare.list
		q.spare.list = r
		q.spare.n++
	}
}

// Add queues a request and reports whether its goroutine is to lead. If not, the
// goroutine calls Wait. The caller holds the mutex.
func (q *Queue[T]) Add(r *Request[T]) (lead bool) {
	first := q.list.head == nil
	q.list.push(r)
	q.queued.Add(1)
	if q.leading {
		if !first {
			r.round.Store(q.current())
		}
		return false
	}
	q.leading = true
	r.state.Store(leader)
	return true
}

// current returns the round of the requests that are added now. The caller holds the mutex.
func (q *Queue[T]) current() *round {
	if q.round == nil {
		q.round = &round{make(chan struct{})}
	}
	return q.round
}

// Len returns how many requests wait. No lock is needed.
func (q *Queue[T]) Len() int { return int(q.queued.Load()) }

// Leading reports whether there is a leader. The caller holds the mutex.
func (q *Queue[T]) Leading() bool { return q.leading }

// First returns the request at the head of the queue, nil when it is empty. The caller
// holds the mutex.
func (q *Queue[T]) First() *Request[T] { return q.list.head }

// Take moves the request at the head of the queue into a group. The caller leads and
// holds the mutex.
func (q *Queue[T]) Take(g *Group[T]) {
	r := q.list.pop()
	q.queued.Add(-1)
	q.round = nil
	g.list.push(r)
	g.n++
}

// Wait waits until the request is done or its goroutine is to lead. It reports whether
// the goroutine is to lead. The caller does not hold the mutex.
func (q *Queue[T]) Wait(r *Request[T]) (lead bool) {
	for {
		<-r.signal()
		if s := r.state.Load(); s == leader || s == done {
			return s == leader
		}
	}
}

// signal returns the channel for which a request waits. That of a round is closed when some of its
// requests are done or lead. The others then have a new one.
func (r *Request[T]) signal() <-chan struct{} {
	if round := r.round.Load(); round != nil {
		return round.over
	}
	return r.wake
}

// Successor is how the goroutine of the next leader is woken.
type Successor struct {
	token chan<- struct{} // its own, or
	round *round
}

// None reports whether there is no next leader: the queue is empty.
func (n Successor) None() bool { return n == Successor{} }

// wake wakes the goroutine, unless it waits for a round that is over.
func (n Successor) wake(over *round) {
	switch {
	case n.token != nil:
		n.token <- struct{}{}
	case n.round != nil && n.round != over:
		close(n.round.over)
	}
}

// choose makes the head of the queue the leader. If it waits for a round, the others of the round
// get another one. The caller holds the mutex.
func (q *Queue[T]) choose() Successor {
	next := q.list.head
	if next == nil {
		q.leading = false
		return Successor{}
	}
	next.state.Store(leader)
	over := next.round.Load()
	if over == nil {
		return Successor{token: next.wake}
	}
	if q.round == over {
		q.round = nil
	}
	for r := next.next; r != nil && r.round.Load() == over; r = r.next {
		r.round.Store(q.current())
	}
	return Successor{round: over}
}

// Gather yields so that goroutines can add their requests before the leader takes its
// group. After a step, the goroutines that waited for it have been woken but have not run
// yet. Without Gather the leader would do the next step for the first of them only, and
// the others would wait for the step after that. Gather yields only while requests are
// added, so a goroutine that is alone is not delayed. The caller leads and does not hold
// the mutex.
func (q *Queue[T]) Gather() {
	n := q.queued.Load()
	if n >= q.expected {
		return
	}
	maxIdle, maxWait := q.MaxIdle, q.MaxWait
	if maxIdle == 0 {
		maxIdle = 2
	}
	if maxWait == 0 {
		maxWait = time.Millisecond
	}
	start := time.Now()
	for idle := 0; n < q.expected && idle < maxIdle; idle++ {
		runtime.Gosched()
		m := q.queued.Load()
		if m > n {
			idle = -1
		}
		n = m
		if time.Since(start) > maxWait {
			return
		}
	}
}

// Pass ends the caller's lead after a step for n requests, and chooses the next leader. The caller
// holds the mutex. When it has unlocked it, it passes the result to Retire.
func (q *Queue[T]) Pass(n int) Successor {
	q.expected = int64(n) + q.queued.Load()
	return q.choose()
}

// Retire sets Err of all requests of a group to err, and wakes their goroutines except
// that of own, the caller's request. Then it wakes the next leader, the result of Pass.
// That leader is woken last, so that Gather finds the other goroutines awake. The caller
// does not hold the mutex.
func Retire[T any](own *Request[T], g Group[T], next Successor, err error) {
	var over *round
	for r := g.list.head; r != nil; {
		follower := r
		r = r.next // before its goroutine uses the request again
		follower.Err = err
		follower.next = nil
		round := follower.round.Load()
		follower.state.Store(done)
		switch {
		case follower == own || round != nil && round == over:
			continue
		case round == nil:
			follower.wake <- struct{}{}
			continue
		case over != nil:
			close(over.over)
		}
		over = round // closed when the last of its requests is done
	}
	if over != nil {
		close(over.over)
	}
	next.wake(over)
}
