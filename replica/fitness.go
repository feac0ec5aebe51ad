// SPDX-License-Identifier: MIT

package replica

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// fitness decides whether this node can serve as the leader: a node whose disk fails or hangs still sends
// heartbeats, and no other node would be elected. A leader that is not fit transfers the leadership, or
// sends nothing more, and is no candidate for some time. It tries its directories until they work.
type fitness struct {
	n     *Node
	stuck atomic.Bool // raft waits for a write of its log, and does not notice that it leads no longer

	mu      sync.Mutex
	reason  error     // why the node is not fit; nil if it is
	since   time.Time // when reason was set
	probing bool
	probes  sync.WaitGroup // what close waits for
	broken  time.Time      // when the node last resigned because of one database
	begun   map[uint64]operation
	next    uint64
	slowest time.Duration // of the log's writes, see end
	armed   bool
}

// operation is a call of the file system that has not returned.
type operation struct {
	begin time.Time
	log   bool // a write of raft's log, without which the leader can do nothing
}

const (
	hungAfter     = 2 * time.Second        // a write of the log
	probeInterval = time.Second            // of a leader; a node that is not fit tries twice as often
	probeAgain    = 100 * time.Millisecond // before a failure counts
)

// unfitElections is for how many times Options.Election a node that is not fit is no candidate. If no other one
// was elected by then, a leader that can read is better than none.
const unfitElections = 10

// begin notes that a call of the file system has begun. The caller calls end when it has returned.
func (f *fitness) begin(log bool) (end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.begun == nil {
		f.begun = make(map[uint64]operation)
	}
	f.next++
	id, begin := f.next, time.Now()
	f.begun[id] = operation{begin, log}
	if !f.armed {
		f.armed = true
		time.AfterFunc(f.limit(), f.look)
	}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.begun, id)
		if log {
			f.stuck.Store(false)
			f.slowest = max(time.Since(begin), f.slowest-f.slowest/1000)
		}
	}
}

// limit is how long a write may take. A disk that is slow, and works, has a larger one. f.mu is locked.
func (f *fitness) limit() time.Duration { return max(f.n.opts.hung, 3*f.slowest) }

// look looks for calls that do not return.
func (f *fitness) look() {
	f.mu.Lock()
	oldest, hung := time.Duration(0), false
	for _, o := range f.begun {
		age := time.Since(o.begin)
		oldest = max(oldest, age)
		hung = hung || o.log && age >= f.limit()
	}
	if f.armed = len(f.begun) > 0 && f.n.life.closing.Err() == nil; f.armed {
		time.AfterFunc(max(f.limit()-oldest, f.limit()/10), f.look)
	}
	slow := oldest >= f.limit()
	f.mu.Unlock()
	switch {
	case hung:
		f.stuck.Store(!f.n.role.running.Load() || !f.n.role.alone())
		f.resign(fmt.Errorf("a write of raft's log has not returned for %v", f.n.opts.hung))
		f.suspect()
	case slow:
		f.suspect()
	}
}

// suspect is called after a failure of the file system. It finds out whether the directories work.
func (f *fitness) suspect() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.probing || f.n.life.closing.Err() != nil {
		return
	}
	f.probing = true
	f.probes.Go(f.probe)
}

// close returns when no probe makes files any more. The node is being closed. It does not wait for a file system
// that does not answer.
func (f *fitness) close() {
	f.mu.Lock()
	f.probing = true // none begins
	f.mu.Unlock()
	f.probes.Wait()
}

// probe tries the directories, until they work if they do not.
func (f *fitness) probe() {
	failures := 0
	for wait := probeAgain; ; {
		err := f.bounded(f.try)
		if err == nil && f.recover() {
			return
		}
		if err != nil {
			failures++
		}
		if err != nil && failures > 1 {
			f.resign(err)
			wait = probeInterval / 2
		}
		select {
		case <-time.After(wait):
		case <-f.n.life.closing.Done():
			return
		}
	}
}

// bounded runs f, and returns an error if it does not return soon. It waits for f before it is called again.
func (f *fitness) bounded(try func() error) error {
	done := make(chan error, 1)
	go func() { done <- try() }()
	f.mu.Lock()
	limit := f.limit()
	f.mu.Unlock()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
	}
	f.resign(fmt.Errorf("the file system has not answered for %v", limit))
	select {
	case err := <-done:
		return err
	case <-f.n.life.closing.Done():
		return nil
	}
}

// try makes, syncs, reads and removes a file in data/ and one beside raft's log.
func (f *fitness) try() error {
	if err := f.present(); err != nil {
		return err
	}
	for _, dir := range []string{f.n.catalog.data, f.n.opts.Dir} {
		name := filepath.Join(dir, sealFile+".probe")
		p := []byte("probe")
		file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		_, err = file.Write(p)
		if err == nil {
			err = f.n.opts.disk.hooked(name, file.Sync)
		}
		if err == nil {
			_, err = file.ReadAt(p, 0)
		}
		if err = errors.Join(err, file.Close(), os.Remove(name)); err != nil {
			return err
		}
	}
	return nil
}

// present returns an error if data/ is not there, or no file can be opened.
func (f *fitness) present() error {
	_, err := os.ReadFile(filepath.Join(f.n.catalog.data, sealFile))
	return err
}

// recover is called when the directories work. It reports whether the node is fit, which ends the probe: the next
// reason begins another one. For two elections the node is not fit, so that another one is elected.
func (f *fitness) recover() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.reason == nil:
	case time.Since(f.since) < 2*f.n.opts.Election:
		return false
	default:
		f.reason = nil
		f.n.log.Info("replica: this node can lead again")
	}
	f.probing = false
	return true
}

// logFailed is called when a write of raft's log has failed. A leader that cannot store entries is none.
func (f *fitness) logFailed(err error) {
	if f.n.role.running.Load() && f.n.raft.State() == raft.Leader {
		f.resign(fmt.Errorf("raft's log cannot be written: %w", err))
	}
	f.suspect()
}

// fileFailed is called when this node, which leads, cannot serve a database because of one of its files. Another
// node may be able to. If that one cannot either, the leadership does not go around too fast.
func (f *fitness) fileFailed(err error) {
	f.mu.Lock()
	soon := time.Since(f.broken) < 2*f.n.opts.Election
	if !soon {
		f.broken = time.Now()
	}
	f.mu.Unlock()
	if !soon && f.n.role.leading.Load() != nil {
		f.resign(err)
	}
	f.suspect()
}

// resign records that the node cannot lead, and why. A leader transfers the leadership. If that fails, mute
// keeps it from sending heartbeats.
func (f *fitness) resign(err error) {
	f.mu.Lock()
	// Again if no other node took over: one may be able to by now.
	first := f.reason == nil || time.Since(f.since) > 3*f.n.opts.Election && f.n.role.leading.Load() != nil
	if first {
		f.reason, f.since = err, time.Now()
	}
	f.mu.Unlock()
	if first {
		f.n.log.Error("replica: this node cannot lead", "error", err)
	}
	if first && f.n.role.running.Load() && !f.n.role.alone() {
		f.n.role.giveUp()
	}
}

// why returns the reason why the node is not fit, nil if it is.
func (f *fitness) why() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reason
}

// mayLead returns an error if this node must not send heartbeats and be no candidate.
func (f *fitness) mayLead() error {
	if f.n.role.retiring.Load() && f.n.life.closing.Err() == nil && f.n.role.running.Load() && f.n.raft.State() != raft.Leader {
		return errors.New("replica: this node is being closed")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.reason == nil {
		return nil
	}
	// A transfer comes first. A leader that is mute is none soon.
	age := time.Since(f.since)
	if age < f.n.opts.Election/10 && f.n.role.running.Load() && f.n.raft.State() == raft.Leader || age > unfitElections*f.n.opts.Election {
		return nil
	}
	return fmt.Errorf("replica: this node cannot lead: %w", f.reason)
}

// watch looks, while this node leads, whether data/ is there and files can be opened.
func (f *fitness) watch() {
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for {
		select {
		case <-f.n.life.closing.Done():
			return
		case <-tick.C:
		}
		if f.n.role.leading.Load() != nil && f.present() != nil {
			f.suspect()
		}
	}
}
