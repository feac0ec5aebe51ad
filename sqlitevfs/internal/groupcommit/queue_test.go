// SPDX-License-Identifier: MIT

package groupcommit

import (
	"errors"
	"runtime"
	"sync"
	"testing"
)

// counter owns a queue: its slow step adds up the values of a group.
type counter struct {
	mu    sync.Mutex
	queue Queue[int]
	sum   int
	steps int
	at    map[int]int // how often each value was added
	fail  error
	step  func()
}

func (c *counter) add(n int) error {
	r := c.queue.New()
	r.Value = n
	c.mu.Lock()
	lead := c.queue.Add(r)
	c.mu.Unlock()
	if lead || c.queue.Wait(r) {
		c.lead(r)
	}
	err := r.Err
	c.queue.Free(r)
	return err
}

func (c *counter) lead(own *Request[int]) {
	c.queue.Gather()
	var g Group[int]
	c.mu.Lock()
	for g.Len() < 10 && c.queue.First() != nil {
		c.queue.Take(&g)
	}
	c.mu.Unlock()
	if c.step != nil {
		c.step()
	}
	for r := g.First(); r != nil; r = r.Next() {
		c.sum += r.Value
		c.at[r.Value]++
	}
	c.steps++
	c.mu.Lock()
	next := c.queue.Pass(g.Len())
	c.mu.Unlock()
	Retire(own, g, next, c.fail)
}

func TestEachRequestIsServedOnce(t *testing.T) {
	const goroutines, each = 32, 500
	c := &counter{at: map[int]int{}}
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := range each {
				if err := c.add(g*each + i); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	const n = goroutines * each
	if len(c.at) != n || c.sum != n*(n-1)/2 {
		t.Errorf("got %d values, sum %d, want %d and %d", len(c.at), c.sum, n, n*(n-1)/2)
	}
	if c.queue.Len() != 0 || c.queue.Leading() {
		t.Errorf("%d requests are left, leader %v", c.queue.Len(), c.queue.Leading())
	}
}

// TestGroups delays the first step until other requests wait: the next steps serve them,
// ten at a time, in order.
func TestGroups(t *testing.T) {
	entered, pass := make(chan struct{}), make(chan struct{})
	c := &counter{at: map[int]int{}}
	c.step = func() {
		entered <- struct{}{}
		<-pass
	}
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			if err := c.add(i); err != nil {
				t.Error(err)
			}
		})
		if i == 0 {
			<-entered
		}
		for c.queue.Len() != i {
			runtime.Gosched()
		}
	}
	want := []int{1, 11, 16}
	for _, n := range want {
		pass <- struct{}{}
		if n < 16 {
			<-entered
		} else {
			wg.Wait()
		}
		if len(c.at) != n {
			t.Errorf("%d values after a step, want %d", len(c.at), n)
		}
	}
}

func TestErrorReachesAll(t *testing.T) {
	c := &counter{at: map[int]int{}, fail: errors.New("broken")}
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if err := c.add(i); err != c.fail {
				t.Errorf("add = %v, want the error of the step", err)
			}
		})
	}
	wg.Wait()
}
