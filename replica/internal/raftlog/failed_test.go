// SPDX-License-Identifier: MIT

package raftlog

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/ringside-io/ringside/internal/loghook"
	"github.com/ringside-io/ringside/internal/testing/powercut"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// recordedStore is the directory of a log whose changes are recorded, and fail on request.
// After a kill nothing changes.
type recordedStore struct {
	loghook.Store
	r    *powercut.Recorder
	dead *atomic.Bool
}

func (s recordedStore) gone() error {
	if s.dead.Load() {
		return syscall.EIO
	}
	return nil
}

func (s recordedStore) Create(name string) (loghook.File, error) {
	return s.open(name, true, func() (loghook.File, error) { return s.Store.Create(name) })
}

func (s recordedStore) Open(name string, write bool) (loghook.File, error) {
	return s.open(name, false, func() (loghook.File, error) { return s.Store.Open(name, write) })
}

func (s recordedStore) open(name string, empty bool, open func() (loghook.File, error)) (f loghook.File, err error) {
	if err := s.gone(); err != nil {
		return nil, err
	}
	number, err := s.r.Opened(s.Path(name), func() error { f, err = open(); return err })
	if err != nil {
		return nil, err
	}
	if empty {
		s.r.Note(powercut.Op{Kind: powercut.Truncate, File: number})
	}
	return recordedFile{f, s, number}, nil
}

func (s recordedStore) Rename(from, to string) error {
	return errors.Join(s.gone(), s.r.Renamed(s.Path(from), s.Path(to), func() error { return s.Store.Rename(from, to) }))
}

func (s recordedStore) Remove(name string) error {
	return errors.Join(s.gone(), s.r.Removed(s.Path(name), func() error { return s.Store.Remove(name) }))
}

func (s recordedStore) Sync() error {
	if err := errors.Join(s.gone(), s.r.Fault("sync of the directory", -1)); err != nil {
		return err
	}
	return s.r.Synced(-1, ".", s.Store.Sync)
}

type recordedFile struct {
	loghook.File
	s      recordedStore
	number int
}

func (f recordedFile) WriteAt(p []byte, off int64) (int, error) {
	if err := errors.Join(f.s.gone(), f.s.r.Fault("write", f.number)); err != nil {
		return 0, err
	}
	n, err := f.File.WriteAt(p, off)
	f.s.r.Wrote(f.number, p[:n], off)
	return n, err
}

func (f recordedFile) Truncate(size int64) error {
	if err := f.s.gone(); err != nil {
		return err
	}
	f.s.r.Note(powercut.Op{Kind: powercut.Truncate, File: f.number, Off: size})
	return f.File.Truncate(size)
}

func (f recordedFile) Sync(full bool) error {
	if err := f.s.gone(); err != nil {
		return err
	}
	return f.s.r.SyncedOrLost(f.number, func() error { return f.File.Sync(full) })
}

// raftLives is a node that stores entries and terms through several starts.
type raftLives struct {
	t    *testing.T
	r    *powercut.Recorder
	dir  string
	dead *atomic.Bool
	next uint64 // the next entry
	term uint64 // of the next entry
	from int    // operations before the first error
}

// As replica does, it stores again what may not fail: terms, and removals at the end.
var failedOptions = Options{SegmentSize: 8 << 10, CacheBytes: 1, Stop: make(chan struct{})}

// life opens the store, makes some calls and ends, by a kill or by Close.
func (l *raftLives) life(calls int, kill bool) {
	l.dead = new(atomic.Bool)
	s, err := Open(l.dir, failedOptions)
	if err != nil {
		l.failed(err)
		return
	}
	defer s.Close()
	for i := range calls {
		last, _ := s.LastIndex()
		l.next = last + 1
		switch i % 4 {
		case 3: // another leader: its entry replaces the last one
			if last < 2 {
				continue
			}
			l.r.Ack(strconv.FormatUint(last, 10), 0)
			if err := s.DeleteRange(last, last); err != nil {
				l.failed(err)
				continue
			}
			l.next = last
			fallthrough
		case 0, 2:
			l.term++
			e := &raft.Log{Index: l.next, Term: l.term, Data: bytes.Repeat([]byte{1}, 900)}
			if err := s.StoreLogs([]*raft.Log{e}); err != nil {
				l.failed(err)
				continue
			}
			l.r.Ack(strconv.FormatUint(e.Index, 10), int(e.Term))
		case 1:
			if err := s.SetUint64([]byte("CurrentTerm"), l.term+1); err != nil {
				l.failed(err)
				continue
			}
			l.r.Ack("term", int(l.term+1))
		}
	}
	l.dead.Store(kill)
}

func (l *raftLives) failed(err error) {
	if !errors.Is(err, syscall.EIO) {
		l.t.Error(err)
	}
	if l.from == 0 {
		l.from = len(l.r.Trace().Ops)
	}
}

// checkRaft opens the store that a power cut left: it has what was acknowledged.
func checkRaft(st *powercut.State, dir string) error {
	s, err := Open(dir, failedOptions)
	if err != nil {
		return err
	}
	defer s.Close()
	for name, acked := range st.Acked {
		if name == "term" {
			if term, err := s.GetUint64([]byte("CurrentTerm")); err != nil || term < uint64(acked) {
				return fmt.Errorf("the term is %d, %w, and %d was acknowledged", term, err, acked)
			}
			continue
		}
		index, _ := strconv.ParseUint(name, 10, 64)
		var e raft.Log
		if err := s.GetLog(index, &e); acked > 0 && (err != nil || e.Term < uint64(acked)) {
			return fmt.Errorf("entry %d is of term %d, %w, and was acknowledged with term %d", index, e.Term, err, acked)
		}
	}
	return nil
}

// TestFailedDisk lets each write and each sync fail once, as after an error of the disk: the
// kernel counts the pages as written. The store goes on by itself, is closed or killed, and
// opened again. A power cut at any moment takes no entry and no term that was acknowledged.
// Promise: replica/raft-s-log
func TestFailedDisk(t *testing.T) {
	fast := func() string {
		dir, err := os.MkdirTemp("/dev/shm", "ringside-raftlog-")
		if err != nil {
			return t.TempDir()
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		return dir
	}
	states, logger := fast(), slog.Default()
	defer slog.SetDefault(logger)
	slog.SetDefault(slog.New(slog.DiscardHandler))
	for _, kill := range []bool{false, true} {
		found := map[string]int{}
		for nth, more := 0, true; more && !t.Failed(); nth++ {
			dir := fast()
			l := &raftLives{t: t, r: powercut.NewRecorder(dir), dir: filepath.Clean(dir)}
			loghook.Wrap = func(s loghook.Store) loghook.Store { return recordedStore{s, l.r, l.dead} }
			l.r.FailAt(nth)
			l.life(9, kill)
			_, what := l.r.Calls()
			l.r.FailAt(-1)
			ended := len(l.r.Trace().Ops)
			l.life(5, true)
			l.life(0, false)
			loghook.Wrap = nil
			if more = what != ""; !more {
				break
			}
			found[what]++
			trace := l.r.Trace()
			if l.from == 0 { // such a failure is no error, as of the end mark
				l.from = ended
			}
			e := powercut.Explore{Seed: uint64(nth), States: 40, From: l.from, Every: 1 + (len(trace.Ops)-l.from)/ringtest.Rounds(10, 5), Dir: states, Check: checkRaft}
			if _, err := trace.Run(e); err != nil {
				t.Errorf("call %d failed: %v", nth, err)
			}
		}
		t.Log(kill, found)
	}
}
