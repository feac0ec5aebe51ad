// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// load describes the requests to a service.
type load struct {
	span           time.Duration
	tenants, conns int
	reads          int // out of a hundred requests
}

const (
	// itemSize is the length of an item in bytes.
	itemSize = 128
	// warm is how long requests run before they are counted.
	warm = 500 * time.Millisecond
)

// asker is one connection and its results.
type asker struct {
	client
	load
	index  int
	item   []byte
	rng    *rand.Rand
	ids    []int64 // by tenant: the newest item that was acknowledged
	total  int64   // requests with a correct answer
	stored int64   // those of them that stored an item
	times  []time.Duration
	errs   int
	err    error // the first one
}

func newAsker(l load, addr string, index int) *asker {
	a := &asker{client: client{addr: addr}, load: l, index: index, ids: make([]int64, l.tenants)}
	a.rng = rand.New(rand.NewPCG(1, uint64(index)))
	a.item = make([]byte, itemSize)
	for i := range a.item {
		a.item[i] = byte(a.rng.Uint32())
	}
	return a
}

func path(tenant int) string { return fmt.Sprintf("/tenants/t%04d", tenant) }

// store writes an item, and records it when it was acknowledged.
func (a *asker) store(tenant int) error {
	var made struct{ ID int64 }
	if err := a.want(201, "POST", path(tenant)+"/items", a.item, &made); err != nil {
		return err
	}
	a.ids[tenant] = made.ID
	a.stored++
	return nil
}

// fetch reads the newest item of this connection, which must exist.
func (a *asker) fetch(tenant int) error {
	where := fmt.Sprintf("%s/items/%d", path(tenant), a.ids[tenant])
	code, body, err := a.ask("GET", where, nil)
	if err == nil && (code != 200 || !bytes.Equal(body, a.item)) {
		err = fmt.Errorf("GET %s: status %d and not the item that was stored", where, code)
	}
	return err
}

// phases of a load.
const (
	warming = iota
	counting
	over
)

// work sends requests until the load is over. A connection has its own tenants if
// there are enough of them.
func (a *asker) work(phase *atomic.Int32) {
	defer a.close()
	for n := 0; ; n++ {
		now := phase.Load()
		if now == over {
			return
		}
		tenant := (a.index + n*a.conns) % a.tenants
		do := a.store
		if a.ids[tenant] > 0 && a.rng.IntN(100) < a.reads {
			do = a.fetch
		}
		begin := time.Now()
		if err := do(tenant); err != nil {
			a.err = errors.Join(a.err, err)
			if a.errs++; a.errs >= 10 {
				return
			}
			continue
		}
		a.total++
		if now == counting {
			a.times = append(a.times, time.Since(begin))
		}
	}
}

// put runs the load against the service and returns the result.
func (l load) put(ctx context.Context, addr string) (*result, error) {
	control := client{addr: addr}
	defer control.close()
	askers := make([]*asker, l.conns)
	var phase atomic.Int32
	var all sync.WaitGroup
	for i := range askers {
		askers[i] = newAsker(l, addr, i)
		all.Go(func() { askers[i].work(&phase) })
	}
	err := pause(ctx, warm)
	begin := time.Now()
	phase.Store(counting)
	err = errors.Join(err, pause(ctx, l.span))
	var s stats
	err = errors.Join(err, control.want(200, "GET", "/stats", nil, &s))
	phase.Store(over)
	elapsed := time.Since(begin)
	all.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	r := &result{Elapsed: elapsed, Threads: s.Threads, Backend: s.Backend}
	r.add(askers)
	return r, r.verify(&control, l)
}

// pause waits, unless ctx ends before.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// add adds up the results of the connections.
func (r *result) add(askers []*asker) {
	var times []time.Duration
	for _, a := range askers {
		times = append(times, a.times...)
		r.Total += a.total
		r.Stored += a.stored
		r.Errors += a.errs
		if r.Err == nil {
			r.Err = a.err
		}
	}
	slices.Sort(times)
	r.Requests = len(times)
	if r.Requests > 0 {
		r.P50, r.P99, r.Max = times[len(times)/2], times[len(times)*99/100], times[len(times)-1]
	}
}

// verify compares the number of items in the databases with the result.
func (r *result) verify(c *client, l load) error {
	var found int64
	for tenant := range l.tenants {
		var n struct{ Items int64 }
		code, _, err := c.ask("GET", path(tenant), nil)
		if err == nil && code == 404 {
			continue // fewer requests than tenants
		}
		if err := c.want(200, "GET", path(tenant), nil, &n); err != nil {
			return err
		}
		found += n.Items
	}
	if found < r.Stored {
		return fmt.Errorf("%d items were acknowledged, %d are there", r.Stored, found)
	}
	return nil
}
