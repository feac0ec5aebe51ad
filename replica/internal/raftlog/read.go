// SPDX-License-Identifier: MIT

package raftlog

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/ringside-io/ringside/appendlog"
)

// GetLog returns an entry, and raft.ErrLogNotFound if there is none.
func (s *Store) GetLog(index uint64, l *raft.Log) error {
	err := s.get(index, l)
	if err == nil || errors.Is(err, raft.ErrLogNotFound) {
		return err
	}
	// A log that failed cannot be read either. Raft writes nothing before it has read.
	s.writing.Lock()
	werr := s.writable()
	s.writing.Unlock()
	if werr != nil {
		return errors.Join(err, werr)
	}
	return s.get(index, l)
}

// Head returns an entry without its data if that has Options.LargeBytes or more, and reports whether it has.
func (s *Store) Head(index uint64, l *raft.Log) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	head, ok := s.large[index]
	if ok {
		*l = head
	}
	return ok
}

func (s *Store) get(index uint64, l *raft.Log) error {
	w, err := s.find(index, l)
	if err != nil || w == nil {
		return err
	}
	return s.read(w, l)
}

// window is where some entries are on the disk.
type window struct {
	log  *appendlog.Log
	from appendlog.Position // at the first one or before it
	at   uint64             // index of the first one
	seqs []uint64           // their record numbers
	cuts uint64             // the number of removals when they were found
}

// find returns an entry that is in memory, or where it and those that follow it are on the disk.
func (s *Store) find(index uint64, l *raft.Log) (*window, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if len(s.seqs) == 0 || index < s.first || index > s.last {
		return nil, raft.ErrLogNotFound
	}
	if n := len(s.recent); n > 0 && index >= s.recent[0].Index {
		*l = s.recent[index-s.recent[0].Index]
		return nil, nil
	}
	want := s.seqs[index-s.first]
	i, found := slices.BinarySearchFunc(s.places, want, func(p appendlog.Position, seq uint64) int { return cmp.Compare(p.Seq, seq) })
	if !found {
		i-- // the last place before the entry
	}
	end := uint64(len(s.seqs))
	if len(s.recent) > 0 {
		end = s.recent[0].Index - s.first
	}
	seqs := slices.Clone(s.seqs[index-s.first : min(end, index-s.first+512)])
	return &window{s.log, s.places[max(i, 0)], index, seqs, s.cuts}, nil
}

// aheadBytes is how much is read from the disk at once, or one entry.
const aheadBytes = 2 << 20

// read reads the first entry of a window, and those that follow it: raft reads in order.
func (s *Store) read(w *window, l *raft.Log) error {
	s.readMu.Lock()
	defer s.readMu.Unlock()
	for _, list := range s.ahead {
		if len(list) > 0 && w.at >= list[0].Index && w.at-list[0].Index < uint64(len(list)) {
			*l = list[w.at-list[0].Index]
			return nil
		}
	}
	var list []raft.Log
	size := 0
	for r, err := range w.log.Records(w.from) {
		if err != nil {
			return err
		}
		if r.Seq < w.seqs[len(list)] {
			continue // a record of another kind, or an entry that was removed later
		}
		var e raft.Log
		if r.Seq != w.seqs[len(list)] || len(list) > 0 && size+len(r.Data) > aheadBytes {
			break
		}
		if err := decode(r.Data, &e); err != nil {
			return err
		}
		if index := w.at + uint64(len(list)); e.Index != index {
			return fmt.Errorf("raftlog: record %d is entry %d instead of %d", r.Seq, e.Index, index)
		}
		list = append(list, e)
		if size += len(e.Data); size >= aheadBytes || len(list) == len(w.seqs) {
			break
		}
	}
	if len(list) == 0 {
		return fmt.Errorf("raftlog: record %d of entry %d is gone: %w", w.seqs[0], w.at, raft.ErrLogNotFound)
	}
	// Entries that were removed meanwhile must not be found later: others have their indexes.
	s.mu.RLock()
	current := s.cuts == w.cuts
	s.mu.RUnlock()
	if current && size <= aheadBytes { // a larger one is a single entry
		s.ahead[s.turn%len(s.ahead)] = list
		s.turn++
	}
	*l = list[0]
	return nil
}
