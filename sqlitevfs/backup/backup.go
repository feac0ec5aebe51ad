// SPDX-License-Identifier: MIT

package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringside-io/ringside/sqlitevfs"
)

// Options configure a Backup. Only Dir and Target are needed.
type Options struct {
	// Dir has the databases, also in directories below it. The name of a database in the target is its path relative
	// to Dir, with slashes.
	Dir string
	// Target receives the objects. It belongs to one Backup: see ErrTaken.
	Target Target
	// Interval is how long commits of a database are gathered into one object; 0 means 750 ms. Each database that
	// commits costs one request for each interval.
	Interval time.Duration
	// Parallel is how many requests are made at a time; 0 means 8.
	Parallel int
	// Memory limits the bytes of pages and objects that wait for the target; 0 means 64 MiB. A database whose
	// changes do not fit gets a snapshot when the target can be reached again.
	Memory int64
	// BytesPerSecond limits what is sent to the target; 0 means no limit.
	BytesPerSecond int64
	// SnapshotEvery is the time between two snapshots of a database that commits; 0 means 24 hours.
	SnapshotEvery time.Duration
	// Keep is how long older states of a database can be restored; 0 means 24 hours. Objects are removed when a
	// newer snapshot makes them unnecessary, never those of the newest state.
	Keep time.Duration
	// Scratch is the directory for copies while a snapshot is made; "" means os.TempDir.
	Scratch string
	// Logger receives failures of the target and their end; nil means slog.Default.
	Logger *slog.Logger

	levels [levelMax]time.Duration // the delays of compaction; tests shorten them
	check  time.Duration           // ownerCheck; tests shorten it
}

// Backup sends the commits of databases to a target. Its methods may be called concurrently.
type Backup struct {
	opts   Options
	target Target
	log    *slog.Logger
	dir    string // Dir, absolute, without symbolic links
	start  time.Time
	stop   func() // ends the observation of package sqlitevfs; nil with a source
	ctx    context.Context
	cancel context.CancelFunc
	all    sync.WaitGroup
	memory atomic.Int64
	limit  limiter
	counts counts
	owner  owner

	source  Source     // nil: package sqlitevfs
	cluster string     // of the source
	hearing sync.Mutex // of those that ask the source what has changed

	mu     sync.Mutex
	done   *sync.Cond // a flush has ended
	dbs    map[string]*database
	queues [queueCount]queue
	wake   chan struct{}
	hurry  int // calls of Sync that wait
	failed error
	closed bool
	looked bool // the directory was searched
}

// The queues, and how long a database waits in each: for a flush, and for the compaction into a level.
const (
	queueFlush    = 0
	queueSnapshot = levelMax + 1
	queueCount    = levelMax + 2
)

type queue struct {
	wait time.Duration
	jobs []job
}

type job struct {
	d     *database
	queue int
	due   time.Time
}

// Start begins to take the commits of all databases below Options.Dir that a VFS of package sqlitevfs serves, of those
// that are open already and of those opened later. Databases that do not commit are compared with the target, too, and what it
// lacks of them is stored. Start does not wait for the target. A process has one Backup at a time.
func Start(o Options) (*Backup, error) {
	if o.Target == nil {
		return nil, errNoTarget
	}
	dir, err := filepath.Abs(o.Dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("backup: Options.Dir: %w", err)
	}
	o.defaults()
	b := newBackup(o)
	b.dir = dir
	if b.stop, err = sqlitevfs.Observe(b.observe); err != nil {
		return nil, err
	}
	b.attachOpen()
	b.run(func() { b.search(b.searchOnce) })
	return b, nil
}

var errNoTarget = errors.New("backup: Options.Target is nil: use a Dir or package s3")

func newBackup(o Options) *Backup {
	b := &Backup{opts: o, target: o.Target, log: o.Logger, dbs: make(map[string]*database), wake: make(chan struct{}, 1)}
	b.done, b.start = sync.NewCond(&b.mu), time.Now()
	b.limit.rate, b.owner.check = o.BytesPerSecond, o.check
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.queues[queueFlush].wait = o.Interval
	for i, wait := range o.levels {
		b.queues[1+i].wait = wait
	}
	b.queues[queueSnapshot].wait = o.SnapshotEvery
	return b
}

// run starts the goroutines of a Backup. search finds the databases that the target lacks.
func (b *Backup) run(search func()) {
	b.all.Go(search)
	work := make(chan job)
	b.all.Go(func() { b.schedule(work) })
	for range b.opts.Parallel {
		b.all.Go(func() {
			for j := range work {
				b.work(j)
			}
		})
	}
}

func (o *Options) defaults() {
	set := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	set(&o.Interval, 750*time.Millisecond)
	set(&o.SnapshotEvery, 24*time.Hour)
	set(&o.Keep, 24*time.Hour)
	set(&o.check, ownerCheck)
	for i, wait := range []time.Duration{30 * time.Second, 5 * time.Minute, time.Hour} {
		set(&o.levels[i], wait)
	}
	if o.Parallel <= 0 {
		o.Parallel = 8
	}
	if o.Memory <= 0 {
		o.Memory = 64 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
}

// database returns the database of a path, or nil if it is outside of the directory.
func (b *Backup) database(path string) *database {
	real := path
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		real = filepath.Join(dir, filepath.Base(path))
	}
	name, err := filepath.Rel(b.dir, real)
	if err != nil || name == ".." || strings.HasPrefix(name, ".."+string(filepath.Separator)) {
		return nil
	}
	d, known := b.named(filepath.ToSlash(name), path)
	if known {
		d.reopened()
	}
	return d
}

// named returns the database of a name, and whether it was known.
func (b *Backup) named(name, path string) (d *database, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d, known = b.dbs[name]
	if !known {
		d = &database{b: b, name: name, path: path, pages: make(map[uint32]image)}
		b.dbs[name] = d
	}
	return d, known
}

// enqueue puts a database that has commits into the queue.
func (b *Backup) enqueue(d *database) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(d, queueFlush, b.turn(d))
}

// turn returns how long it takes to the next turn of a database. They are spread over the interval.
func (b *Backup) turn(d *database) time.Duration {
	phase := time.Duration(maphash.String(seed, d.name) % uint64(b.opts.Interval))
	return b.opts.Interval - (time.Since(b.start)+phase)%b.opts.Interval
}

var seed = maphash.MakeSeed()

// add puts a database into a queue. The caller holds the mutex.
func (b *Backup) add(d *database, queue int, wait time.Duration) {
	if queue == queueFlush {
		if d.queued {
			return
		}
		d.queued = true
	}
	q := &b.queues[queue]
	j := job{d, queue, time.Now().Add(wait)}
	i := len(q.jobs)
	for i > 0 && q.jobs[i-1].due.After(j.due) {
		i--
	}
	q.jobs = append(q.jobs, job{})
	copy(q.jobs[i+1:], q.jobs[i:])
	q.jobs[i] = j
	if i == 0 {
		b.signal()
	}
}

func (b *Backup) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// schedule hands out jobs when they are due. It sleeps while there is none.
func (b *Backup) schedule(work chan<- job) {
	defer close(work)
	timer := time.NewTimer(0)
	for {
		j, wait := b.next()
		if j.d != nil {
			select {
			case work <- j:
			case <-b.ctx.Done():
				return
			}
			continue
		}
		timer.Stop()
		if wait >= 0 {
			timer.Reset(wait)
		}
		select {
		case <-timer.C:
		case <-b.wake:
		case <-b.ctx.Done():
			return
		}
	}
}

// next returns a job that is due, or how long to wait for one; -1 means that there is none.
func (b *Backup) next() (j job, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	wait = -1
	for i := range b.queues {
		q := &b.queues[i]
		for len(q.jobs) > 0 {
			first := q.jobs[0]
			left := first.due.Sub(now)
			if left > 0 && !(i == queueFlush && b.hurry > 0 && first.d.tries == 0) {
				if wait < 0 || left < wait {
					wait = left
				}
				break
			}
			q.jobs[0] = job{}
			if q.jobs = q.jobs[1:]; len(q.jobs) == 0 {
				q.jobs = nil
			}
			if i == queueFlush {
				first.d.queued = false
			}
			if first.d.busy {
				first.d.again = first.d.again || i == queueFlush
				if i != queueFlush {
					b.add(first.d, i, time.Second)
				}
				continue
			}
			first.d.busy = true
			return first, 0
		}
	}
	return job{}, wait
}

// work does a job of a database that is not busy otherwise.
func (b *Backup) work(j job) {
	d := j.d
	var err error
	if j.queue == queueFlush {
		err = d.flush(b.ctx)
	} else {
		err = d.compact(b.ctx, j.queue, time.Now())
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	d.busy = false
	defer b.done.Broadcast()
	if j.queue != queueFlush {
		b.compacted(d, j.queue, err)
		if d.again || d.waiting.Load() { // a flush was due meanwhile
			b.add(d, queueFlush, 0)
		}
		return
	}
	d.err = err
	switch {
	case err == nil:
		if d.tries > 0 {
			b.log.Info("backup: the target has the commits again", "database", d.name)
		}
		d.tries = 0
		if d.again || d.waiting.Load() {
			b.add(d, queueFlush, b.turn(d))
		}
	case b.source != nil && errors.Is(err, ErrTaken): // the process that leads now stores it
	case b.ctx.Err() == nil:
		if d.tries++; d.tries == 1 {
			b.log.Warn("backup: commits wait for the target", "database", d.name, "error", err)
		}
		b.failed = err
		b.counts.failures.Add(1)
		b.add(d, queueFlush, retry(d.tries))
	}
	d.again = false
}

// retry returns how long to wait after a number of failures.
func retry(tries int) time.Duration {
	return min(30*time.Second, 250*time.Millisecond<<min(tries-1, 8))
}

// compacted plans what follows a compaction. The caller holds the mutex.
func (b *Backup) compacted(d *database, queue int, err error) {
	d.levels &^= 1 << queue
	if err != nil && b.ctx.Err() == nil {
		b.counts.failures.Add(1)
		b.log.Warn("backup: compaction", "database", d.name, "error", err)
		b.plan(d, queue)
	} else if queue < levelMax {
		b.plan(d, queue+1)
	}
}

// plan puts a database into the queue for a compaction, once. The caller holds the mutex.
func (b *Backup) plan(d *database, queue int) {
	if d.levels&(1<<queue) == 0 {
		d.levels |= 1 << queue
		b.add(d, queue, b.queues[queue].wait)
	}
}

// put sends an object.
func (b *Backup) put(ctx context.Context, name string, body *io.SectionReader, stamp time.Time) error {
	if err := b.limit.wait(ctx, body.Size()); err != nil {
		return err
	}
	if err := b.own(ctx); err != nil {
		return err
	}
	b.counts.requests.Add(1)
	err := b.target.Put(ctx, name, body, stamp)
	if errors.Is(err, fs.ErrExist) {
		same, readErr := b.has(ctx, name, body)
		if same {
			err = nil
		} else {
			b.owner.doubt()
			err = errors.Join(errConflict, err, readErr)
		}
	}
	if err != nil {
		return &targetError{error: fmt.Errorf("backup: %s: %w", name, err)}
	}
	b.counts.objects.Add(1)
	b.counts.bytes.Add(uint64(body.Size()))
	return nil
}

var errConflict = errors.New("another object has the name")

// stored counts an object that is in the target.
func (b *Backup) stored(d *database, o *object) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !o.since.IsZero() {
		b.counts.lag(time.Since(o.since))
	}
	d.done, d.last, d.stored, d.behind = max(d.done, o.epoch), time.Now(), uint64(o.Max), time.Time{}
	b.failed = nil
	if o.Level == 0 {
		b.plan(d, 1)
	}
	b.plan(d, queueSnapshot)
}

// begun notes the age of the commits that a flush has taken.
func (b *Backup) begun(d *database, since time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !since.IsZero() {
		d.behind = since
	}
}

// finished notes that there was nothing to store.
func (b *Backup) finished(d *database, epoch uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d.done, d.behind = max(d.done, epoch), time.Time{}
}

// Sync returns when the target has all commits that returned before the call, and the databases that Start has found. If the
// target fails, Sync goes on until the context ends, and then returns the target's error.
func (b *Backup) Sync(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.done.Broadcast()
	})
	defer stop()
	want := make(map[*database]uint64)
	b.mu.Lock()
	for !b.looked {
		if err := cmp.Or(ctx.Err(), b.ctx.Err()); err != nil {
			defer b.mu.Unlock()
			return errors.Join(err, b.failed)
		}
		b.done.Wait()
	}
	for _, d := range b.dbs {
		want[d] = 0
	}
	b.hurry++
	b.signal()
	b.mu.Unlock()
	for d := range want {
		d.mu.Lock()
		want[d] = d.epoch
		d.mu.Unlock()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	defer func() { b.hurry-- }()
	for d, epoch := range want {
		for d.done < epoch {
			if err := cmp.Or(ctx.Err(), b.ctx.Err()); err != nil || errors.Is(d.err, ErrTaken) {
				return errors.Join(err, d.err)
			}
			b.signal()
			b.done.Wait()
		}
	}
	return nil
}

// Shutdown calls Sync, and then Close. Close the databases before.
func (b *Backup) Shutdown(ctx context.Context) error {
	return errors.Join(b.Sync(ctx), b.Close())
}

// Close stops the backup. Commits that the target does not have are not lost for it: the next Backup of the databases
// compares them with the target.
func (b *Backup) Close() error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return os.ErrClosed
	}
	b.closed = true
	b.mu.Unlock()
	if b.stop != nil {
		b.stop()
		b.detach()
	}
	b.cancel()
	b.mu.Lock()
	b.done.Broadcast() // to adopt: what waits in the queue is not begun any more
	b.mu.Unlock()
	b.all.Wait()
	b.resign()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, d := range b.dbs {
		if d.ready != nil {
			d.release()
		}
	}
	b.done.Broadcast()
	return nil
}
