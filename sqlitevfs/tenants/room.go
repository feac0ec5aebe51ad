// SPDX-License-Identifier: MIT

package tenants

import (
	"container/list"
	"context"
	"runtime"
	"sync"
	"time"
)

// room decides who uses which connection when, within the bounds of the options.
type room struct {
	opts *Options

	mu      sync.Mutex
	tenants map[string]*tenant // those that are open, in use or waited for
	idle    list.List          // of *tenant whose connection is not in use, least recently used first
	queue   list.List          // of *turn that wait for room; each has the turn of its tenant
	gate    list.List          // of *turn that have room, and wait for a place to open their database
	waking  list.List          // of *tenant that have a place, the first one first
	timed   bool               // a timer runs for the first of waking
	patient time.Duration      // patience; tests change it
	open    size               // all connections, and the room of the gate
	closing size               // those of them that are being closed
	spare   int                // for how many wake-ups room is kept free
	waiting int
	inUse   int
	stats   Stats // the counters only
	planned bool  // a sweep
	ended   bool
	change  chan struct{} // closed when a tenant is forgotten
}

// size is what connections have of the bounds.
type size struct {
	conns int
	bytes int64
}

func (s *size) add(conns int, bytes int64) { s.conns += conns; s.bytes += bytes }

// tenant is a tenant whose database is open, in use or waited for. The mutex of room guards all but
// conn, which the use that has the turn and the room may read without it.
type tenant struct {
	name    string
	conn    *Conn
	charge  int64         // bytes of the bound
	place   *list.Element // in idle
	used    time.Time
	busy    bool          // a turn is in the queue, or has the connection
	closing bool          // the connection is being closed
	waking  *list.Element // in waking
	since   time.Time     // of waking
	turns   list.List     // of *turn
	closed  *turn         // waits until the connection is closed; it has the turn
}

// turn is a use that waits.
type turn struct {
	create, closed bool // the use creates the database, needs it closed
	t              *tenant
	place          *list.Element // in a list; nil if it was granted or refused
	in             *list.List    // turns, queue or gate
	granted        chan error
}

func (r *room) init(o *Options) {
	r.opts, r.tenants, r.change = o, make(map[string]*tenant), make(chan struct{})
	r.patient = patience
	r.spare = min(2*places(), o.MaxOpen/8, int(o.Memory/o.TenantMemory/8))
}

// acquire waits for the turn of a tenant, and for room. The caller must open the database if it is
// closed, and must call release or failed.
func (r *room) acquire(ctx context.Context, name string, w turn) (*tenant, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w.granted = make(chan error, 1)
	r.mu.Lock()
	if r.ended {
		r.mu.Unlock()
		return nil, ErrClosed
	}
	t := r.tenants[name]
	if t == nil {
		t = &tenant{name: name}
		r.tenants[name] = t
	}
	w.t = t
	r.waiting++
	if t.busy {
		w.enter(&t.turns)
	} else {
		r.seek(&w)
	}
	r.mu.Unlock()
	select {
	case err := <-w.granted:
		return t, err
	case <-ctx.Done():
	}
	return r.leave(ctx, &w)
}

// enter puts a turn behind the others of a list, and exit removes it.
func (w *turn) enter(l *list.List) { w.place, w.in = l.PushBack(w), l }

func (w *turn) exit() {
	w.in.Remove(w.place)
	w.place, w.in = nil, nil
}

// leave gives up a turn, unless it was granted meanwhile.
func (r *room) leave(ctx context.Context, w *turn) (*tenant, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := w.t
	switch {
	case t.closed == w:
		t.closed = nil
	case w.place == nil:
		return t, <-w.granted
	case w.in == &t.turns:
		w.exit()
		r.waiting--
		return nil, ctx.Err()
	default:
		r.abandon(w)
	}
	r.waiting--
	r.pass(t)
	return nil, ctx.Err()
}

// seek gives a turn its tenant, and makes it wait for room. The caller holds the mutex.
func (r *room) seek(w *turn) {
	t := w.t
	t.busy = true
	switch {
	case !w.closed:
		w.enter(&r.queue)
		r.admit()
	case t.conn == nil && !t.closing:
		r.grant(w)
	default:
		t.closed = w
		if t.conn != nil {
			r.shut(t)
		}
	}
}

// grant ends the wait of a turn. The caller holds the mutex.
func (r *room) grant(w *turn) {
	r.waiting--
	r.inUse++
	w.granted <- nil
}

// admit grants the turns for which there is room, and closes idle databases for the next ones. The
// caller holds the mutex.
func (r *room) admit() {
	var next *list.Element
	for e := r.queue.Front(); e != nil; e = next {
		next = e.Next()
		w := e.Value.(*turn)
		if w.t.closing { // which may hang
			continue
		}
		if !r.fits(r.with(r.open, w.t)) {
			break
		}
		w.exit()
		r.take(w.t)
		if w.t.conn == nil {
			w.enter(&r.gate)
		} else {
			r.grant(w)
		}
	}
	r.openGate()
	r.makeRoom()
}

// places is how many databases are opened at a time. Opening one takes a processor for most of its time: if more are
// opened at a time, all of them take longer.
func places() int { return runtime.GOMAXPROCS(0) }

// patience is after which time a database that is being opened has no place any more: it waits for the disk, or hangs.
const patience = 2 * time.Millisecond

// openGate grants turns whose databases are to be opened. The caller holds the mutex.
func (r *room) openGate() {
	for e := r.gate.Front(); e != nil; e = r.gate.Front() {
		for first := r.waking.Front(); first != nil; first = r.waking.Front() {
			t := first.Value.(*tenant)
			if time.Since(t.since) < r.patient {
				break
			}
			r.vacate(t)
		}
		if r.waking.Len() >= places() {
			r.await()
			return
		}
		w := e.Value.(*turn)
		w.exit()
		w.t.since, w.t.waking = time.Now(), r.waking.PushBack(w.t)
		r.grant(w)
	}
}

// await opens the gate when the first of waking has no place any more. The caller holds the mutex.
func (r *room) await() {
	if r.timed {
		return
	}
	r.timed = true
	since := r.waking.Front().Value.(*tenant).since
	time.AfterFunc(time.Until(since.Add(r.patient)), func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.timed = false
		r.openGate()
	})
}

// vacate gives the place of a tenant to another one. The caller holds the mutex.
func (r *room) vacate(t *tenant) {
	if t.waking != nil {
		r.waking.Remove(t.waking)
		t.waking = nil
	}
}

// makeRoom begins to close idle databases for the turns in the queue, and for some that may come. The caller holds the
// mutex.
func (r *room) makeRoom() {
	after := size{r.open.conns - r.closing.conns, r.open.bytes - r.closing.bytes}
	n := 0
	for e := r.queue.Front(); e != nil && n < ahead; e = e.Next() {
		t := e.Value.(*turn).t
		if t.closing {
			continue
		}
		after = r.with(after, t)
		if !r.evict(&after, func() *tenant { return r.victim(t, n == 0) }) {
			return
		}
		n++
	}
	for ; n < r.spare; n++ {
		after.add(1, r.opts.TenantMemory)
		if !r.evict(&after, r.oldest) {
			return
		}
	}
}

// evict begins to close databases until a size fits. It reports false if there are too few.
func (r *room) evict(after *size, victim func() *tenant) bool {
	for !r.fits(*after) {
		t := victim()
		if t == nil {
			return false
		}
		after.add(-1, -t.charge)
		r.stats.Evicted++
		r.shut(t)
	}
	return true
}

// ahead is for how many turns databases are closed at a time. To close one may wait for the disk.
const ahead = 32

// with returns a size with the connection of a tenant in use.
func (r *room) with(s size, t *tenant) size {
	switch {
	case t.conn != nil:
		s.add(0, r.opts.TenantMemory-t.charge)
	default:
		s.add(1, r.opts.TenantMemory)
	}
	return s
}

func (r *room) fits(s size) bool { return s.conns <= r.opts.MaxOpen && s.bytes <= r.opts.Memory }

// take takes the room for a tenant. The caller holds the mutex.
func (r *room) take(t *tenant) {
	r.open = r.with(r.open, t)
	t.charge = r.opts.TenantMemory
	if t.place != nil {
		r.idle.Remove(t.place)
		t.place = nil
	}
}

// oldest returns the least recently used idle database that no turn waits for, or nil.
func (r *room) oldest() *tenant {
	for e := r.idle.Front(); e != nil; e = e.Next() {
		if t := e.Value.(*tenant); !t.busy {
			return t
		}
	}
	return nil
}

// victim returns the idle database to close, or nil. If the first turn of the queue needs it, it
// may be one that other turns wait for: they have not got room for it.
func (r *room) victim(not *tenant, first bool) *tenant {
	if t := r.oldest(); t != nil {
		return t
	}
	for e := r.idle.Back(); e != nil && first; e = e.Prev() {
		if t := e.Value.(*tenant); t != not {
			return t
		}
	}
	return nil
}

// shut begins to close the connection of a tenant. The caller holds the mutex.
func (r *room) shut(t *tenant) {
	if t.place != nil {
		r.idle.Remove(t.place)
		t.place = nil
	}
	c := t.conn
	t.conn, t.closing = nil, true
	r.closing.add(1, t.charge)
	go func() {
		err := c.close()
		if err != nil {
			r.opts.Logger.Warn("tenants: a database was not closed well; its commits are kept", "tenant", t.name, "error", err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.closing.add(-1, -t.charge)
		r.open.add(-1, -t.charge)
		t.charge, t.closing = 0, false
		if w := t.closed; w != nil {
			t.closed = nil
			r.grant(w)
		}
		r.forget(t)
		r.admit()
		r.plan()
	}()
}

// woken gives a tenant its connection, which was opened.
func (r *room) woken(t *tenant, c *Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t.conn = c
	r.stats.Wakes++
	r.vacate(t)
	r.openGate()
}

// failed gives a turn back whose database could not be opened. The turns that wait for the same
// get the same error, unless it was the context of the first one that ended.
func (r *room) failed(t *tenant, create bool, err error, own bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.giveBack(t)
	r.vacate(t)
	r.inUse--
	for e := t.turns.Front(); e != nil && !own; {
		w, next := e.Value.(*turn), e.Next()
		if !w.closed && w.create == create {
			w.exit()
			r.refuse(w, err)
		}
		e = next
	}
	r.pass(t)
}

// giveBack gives the room of a tenant back that has no connection. The caller holds the mutex.
func (r *room) giveBack(t *tenant) {
	r.open.add(-1, -t.charge)
	t.charge = 0
}

// abandon removes a turn from the queue or the gate. The caller holds the mutex.
func (r *room) abandon(w *turn) {
	if w.in == &r.gate {
		r.giveBack(w.t)
	}
	w.exit()
}

// refuse ends the wait of a turn with an error. The caller holds the mutex.
func (r *room) refuse(w *turn, err error) {
	r.waiting--
	w.granted <- err
}

// release gives a turn and its connection back. The connection is closed unless keep is set.
func (r *room) release(t *tenant, keep bool) {
	var bytes int64
	if keep {
		bytes = min(t.conn.size(), r.opts.TenantMemory)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inUse--
	switch {
	case t.conn == nil: // of Closed
	case keep && !r.ended:
		r.open.add(0, bytes-t.charge)
		t.charge, t.used = bytes, time.Now()
		t.place = r.idle.PushBack(t)
	default:
		r.shut(t)
	}
	r.pass(t)
}

// pass gives the turn of a tenant to the next use, which then waits for room behind all others.
// The caller holds the mutex.
func (r *room) pass(t *tenant) {
	t.busy = false
	if e := t.turns.Front(); e != nil {
		w := e.Value.(*turn)
		w.exit()
		r.seek(w)
	}
	r.forget(t)
	r.admit()
	r.plan()
}

// forget removes a tenant that is closed and not waited for. The caller holds the mutex.
func (r *room) forget(t *tenant) {
	if !t.busy && t.conn == nil && !t.closing && r.tenants[t.name] == t {
		delete(r.tenants, t.name)
		close(r.change)
		r.change = make(chan struct{})
	}
}

// atOnce is how many idle databases are closed at a time.
const atOnce = 16

// plan plans to close the least recently used database when it has been idle for long enough. The
// caller holds the mutex.
func (r *room) plan() {
	if r.planned || r.closing.conns >= atOnce {
		return
	}
	if t := r.oldest(); t != nil {
		r.planned = true
		time.AfterFunc(time.Until(t.used.Add(r.opts.Idle)), r.sweep)
	}
}

func (r *room) sweep() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.planned = false
	now := time.Now()
	for r.closing.conns < atOnce {
		t := r.oldest()
		if t == nil || t.used.Add(r.opts.Idle).After(now) {
			break
		}
		r.stats.Idle++
		r.shut(t)
	}
	r.plan()
}

// drain refuses the turns that wait and closes the idle databases. It returns how many tenants are
// left, and a channel that is closed when that changes.
func (r *room) drain() (int, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	for _, t := range r.tenants {
		for e := t.turns.Front(); e != nil; e = t.turns.Front() {
			w := e.Value.(*turn)
			w.exit()
			r.refuse(w, ErrClosed)
		}
	}
	for _, l := range []*list.List{&r.queue, &r.gate} {
		for e := l.Front(); e != nil; e = l.Front() {
			w := e.Value.(*turn)
			r.abandon(w)
			w.t.busy = false
			r.refuse(w, ErrClosed)
			r.forget(w.t)
		}
	}
	for e := r.idle.Front(); e != nil; e = r.idle.Front() {
		r.shut(e.Value.(*tenant))
	}
	return len(r.tenants), r.change
}

func (r *room) report() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.stats
	s.Open, s.Memory, s.InUse, s.Waiting = r.open.conns, r.open.bytes, r.inUse, r.waiting
	return s
}
