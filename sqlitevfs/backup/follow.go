// SPDX-License-Identifier: MIT

package backup

import (
	"context"
	"errors"
	"sync"
)

// Source has databases that another package than sqlitevfs serves: replica.Feed has those of a cluster. A transaction
// of a database has a number. Numbers grow in steps of any size, and the processes that have the source agree on them.
type Source interface {
	// Lead waits until this process is the one that backs the databases up. The cluster identifies the databases. The
	// term is higher than those of processes that were it before. over is closed when another one may be it.
	Lead(ctx context.Context) (cluster string, term uint64, over <-chan struct{}, err error)
	// Positions returns the databases with the newest transaction of each. One that is not among them did not
	// exist when newest was the newest transaction of all databases.
	Positions() (newest uint64, all map[string]uint64)
	// Changed returns the names of databases that were changed, created or deleted since the last call, and a channel
	// that is closed when there are more.
	Changed() (names []string, more <-chan struct{})
	// Read calls fn with the newest state of a database. changed has the pages, sorted, that may differ from the
	// state of the transaction since; nil means all. page returns a page, which is valid until the next call. The error is
	// fs.ErrNotExist if there is no such database.
	Read(ctx context.Context, name string, since uint64, fn func(
		txid uint64, pageSize int, pages uint32, changed []uint32, page func(n uint32) ([]byte, error)) error) error
}

// Follower backs the databases of a Source up while the source says that this process is to do it. Its methods may be called
// concurrently.
type Follower struct {
	source Source
	opts   Options
	cancel context.CancelFunc
	over   sync.WaitGroup

	mu   sync.Mutex
	now  *Backup       // nil while another process has it
	turn chan struct{} // closed when now changes
	sum  Stats         // of the Backups before
}

// Follow begins to back the databases of a source up. Options.Dir is not used. The target belongs to the cluster of the
// source: that of another one is refused. The objects of a transaction are the same in each process, so a process that
// takes over continues the stream of each database.
func Follow(s Source, o Options) (*Follower, error) {
	if o.Target == nil {
		return nil, errNoTarget
	}
	o.defaults()
	ctx, cancel := context.WithCancel(context.Background())
	f := &Follower{source: s, opts: o, cancel: cancel, turn: make(chan struct{})}
	f.over.Go(func() { f.run(ctx) })
	return f, nil
}

func (f *Follower) run(ctx context.Context) {
	for ctx.Err() == nil {
		cluster, term, over, err := f.source.Lead(ctx)
		if err != nil {
			if ctx.Err() == nil {
				f.opts.Logger.Error("backup: the source of the databases has failed", "error", err)
			}
			return
		}
		b := newBackup(f.opts)
		b.source, b.cluster, b.owner.number = f.source, cluster, term
		f.set(b)
		b.run(b.reconcile)
		b.all.Go(b.listen)
		select {
		case <-over:
		case <-ctx.Done():
		}
		_ = b.Close()
		f.set(nil)
	}
}

// set begins or ends the Backup of this process.
func (f *Follower) set(b *Backup) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.now != nil {
		f.sum = f.total()
		f.sum.Databases, f.sum.Behind, f.sum.Lag, f.sum.Memory, f.sum.Error = 0, 0, 0, 0, ""
	}
	f.now = b
	close(f.turn)
	f.turn = make(chan struct{})
}

// total returns the counters of all Backups. The caller holds the mutex.
func (f *Follower) total() Stats {
	if f.now == nil {
		return f.sum
	}
	return f.now.Stats().Plus(f.sum)
}

// Active reports whether this process stores the commits now.
func (f *Follower) Active() bool { return f.current() != nil }

func (f *Follower) current() *Backup {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

// Stats returns the counters of this process, also of times when it was active before. Databases counts those that have
// changed since it is active.
func (f *Follower) Stats() Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.total()
}

// Databases returns the state of each database that has changed since this process is active, sorted by name.
func (f *Follower) Databases() []Status {
	if b := f.current(); b != nil {
		return b.Databases()
	}
	return nil
}

// Sync waits until this process is active and the target has all commits that returned before. See Backup.Sync.
func (f *Follower) Sync(ctx context.Context) error {
	for {
		f.mu.Lock()
		b, turn := f.now, f.turn
		f.mu.Unlock()
		if b != nil {
			b.hear()
			if err := b.Sync(ctx); err == nil || ctx.Err() != nil || b.ctx.Err() == nil && !errors.Is(err, ErrTaken) {
				return err
			}
		}
		select {
		case <-turn:
		case <-ctx.Done():
			return errors.Join(errInactive, ctx.Err())
		}
	}
}

var errInactive = errors.New("backup: another process has the backup: it does not lead")

// Close stops the backup. The process that takes over, or that follows the source later, stores what the target lacks.
func (f *Follower) Close() error {
	f.cancel()
	f.over.Wait()
	return nil
}
