// SPDX-License-Identifier: MIT

// Package raftlog keeps raft's log and its few settings in an appendlog.
//
// Everything is a record at the end of one log: entries, the removal of entries, settings.
// A call of StoreLogs is one durable write. Open reads the log from its beginning and
// restores the state of the last durable call. Removing entries from the front trims the
// segments that are no longer needed.
package raftlog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"runtime/trace"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/ringside-io/ringside/appendlog"
)

// ErrKeyNotFound is returned by Get and GetUint64. Raft compares its text.
var ErrKeyNotFound = errors.New("not found")

// ErrOrder is returned by StoreLogs for entries that are not numbered in order, or that are
// not behind the last one of the log.
var ErrOrder = errors.New("raftlog: the entries do not follow the last one of the log in order")

// Options configure a Store. The zero value works.
type Options struct {
	// SegmentSize is the size of a segment file in bytes. 0 is 128 MiB. A raft entry
	// must fit into a segment.
	SegmentSize int64
	// CacheBytes bounds the newest entries that are kept in memory. 0 is 32 MiB.
	CacheBytes int
	// LargeBytes is the size of an entry's data from which Head returns the entry. 0 is 64 KiB.
	LargeBytes int
	// Sync is how durable a call is when it returns. The zero value survives a power cut.
	Sync appendlog.SyncMode
	// Stop, if not nil, makes some calls retry after a failure, for example of a full disk, until
	// Stop is closed. Raft ends the process if it cannot store its term. If it has removed entries
	// at the end and cannot store those that replace them, it goes on as if the old ones were there.
	// After a call that was stopped nothing more is stored.
	Stop <-chan struct{}
	// Written, if not nil, is called after each durable write with the segment. Its error
	// becomes the error of the write. Tests cut power and fail syncs with it.
	Written func(appendlog.SegmentInfo) error
	// Trace makes each durable write, with its sync, a region "replica.sync" of package
	// runtime/trace.
	Trace bool
}

// batchBytes is how much StoreLogs writes at once.
const batchBytes = 16 << 20

// Store is a raft.LogStore and a raft.StableStore. Its methods may be called concurrently.
//
// After a failed write the next call that writes, or cannot read, opens the log again and cuts
// off data that the failed call may have left. So no restart is needed when a full disk has
// room again.
type Store struct {
	dir  string
	opts Options

	writing sync.Mutex // held by calls that write, before mu
	broken  error      // the log must be opened again
	least   uint64     // while broken: the log must have the entries up to this one
	most    uint64     // while broken: entries after this one are those of failed calls
	closed  bool
	refused bool // a call was stopped
	replace bool // entries at the end were removed, and none were stored since

	mu     sync.RWMutex // guards the fields below; not held while the log is written
	log    *appendlog.Log
	first  uint64               // of the entries; 0 if there are none
	last   uint64               // likewise
	seqs   []uint64             // record numbers of the entries first to last
	large  map[uint64]raft.Log  // the entries that Head returns
	places []appendlog.Position // of some records, in order
	keys   map[string][]byte
	recent []raft.Log // the newest entries, ending with last
	bytes  int        // of their data
	cuts   uint64     // number of removals

	readMu sync.Mutex
	ahead  [4][]raft.Log // entries read from the disk, a window for each reader
	turn   int
}

// A Store is no raft.MonotonicLogStore, although its index has no gaps: of such a store raft 1.8
// removes all entries when another node sends a snapshot, even entries behind the snapshot that
// this node has acknowledged, and goes on as if it had them.
var (
	_ raft.LogStore    = (*Store)(nil)
	_ raft.StableStore = (*Store)(nil)
)

// Open opens the store in a directory and creates it if it does not exist.
func Open(dir string, o Options) (*Store, error) {
	if o.SegmentSize == 0 {
		o.SegmentSize = 128 << 20
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = 32 << 20
	}
	if o.LargeBytes == 0 {
		o.LargeBytes = 64 << 10
	}
	s := &Store{dir: dir, opts: o}
	if err := s.load(); err != nil {
		return nil, err
	}
	return s, nil
}

// load opens the log and reads it.
func (s *Store) load() error {
	log, err := appendlog.Open(s.dir, appendlog.Options{
		SegmentSize: s.opts.SegmentSize,
		MaxRecord:   int(s.opts.SegmentSize - 4096),
		Sync:        s.opts.Sync,
	})
	if err != nil {
		return err
	}
	// If reading fails, the index stays: it tells what the log must have.
	read := &Store{dir: s.dir, opts: s.opts, keys: make(map[string][]byte), large: make(map[uint64]raft.Log)}
	for r, err := range log.Records(appendlog.Position{}) {
		if err == nil {
			err = read.replay(r)
		}
		if err != nil {
			return errors.Join(err, log.Close())
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log, s.first, s.last, s.seqs, s.large, s.places, s.recent, s.bytes, s.keys = log, read.first, read.last, read.seqs, read.large, read.places, nil, 0, read.keys
	return nil
}

// every is the distance, in records, of two records whose places are kept. It is shorter if the records
// have everyBytes.
const (
	every      = 64
	everyBytes = 1 << 20
)

func (s *Store) replay(r appendlog.Record) error {
	if n := len(s.places); n == 0 || r.Seq >= s.places[n-1].Seq+every || r.Segment != s.places[n-1].Segment || r.Offset >= s.places[n-1].Offset+everyBytes {
		s.places = append(s.places, r.Position)
	}
	bad := func() error {
		return fmt.Errorf("raftlog: record %d of %s does not belong to this store", r.Seq, s.dir)
	}
	if len(r.Data) == 0 {
		return bad()
	}
	p := r.Data[1:]
	switch r.Data[0] {
	case kindEntry:
		var l raft.Log
		data, err := decodeHead(r.Data, &l)
		if err != nil {
			return bad()
		}
		if len(s.seqs) > 0 && l.Index != s.last+1 {
			return fmt.Errorf("raftlog: record %d of %s: entry %d follows entry %d", r.Seq, s.dir, l.Index, s.last)
		}
		s.add(l, len(data), r.Seq)
	case kindRemove:
		if len(p) != 16 {
			return bad()
		}
		s.remove(binary.LittleEndian.Uint64(p), binary.LittleEndian.Uint64(p[8:]))
	case kindSet:
		n, size := binary.Uvarint(p)
		if size <= 0 || n > uint64(len(p)-size) {
			return bad()
		}
		p = p[size:]
		s.keys[string(p[:n])] = append([]byte{}, p[n:]...)
	default:
		return bad()
	}
	return nil
}

// add puts an entry into the index.
func (s *Store) add(l raft.Log, size int, seq uint64) {
	if len(s.seqs) == 0 {
		s.first = l.Index
	}
	s.last = l.Index
	s.seqs = append(s.seqs, seq)
	if size >= s.opts.LargeBytes {
		l.Data = nil
		s.large[l.Index] = l
	}
}

// remove takes entries out of the index. A range that ends within the log is one at its front.
func (s *Store) remove(from, to uint64) {
	if len(s.seqs) == 0 || to < s.first || from > s.last {
		return
	}
	if to >= s.last {
		s.seqs = s.seqs[:max(from, s.first)-s.first]
		s.last = max(from, s.first) - 1
	} else {
		s.seqs = append([]uint64(nil), s.seqs[to+1-s.first:]...)
		s.first = to + 1
	}
	if len(s.seqs) == 0 {
		s.first, s.last, s.seqs = 0, 0, nil
	}
	maps.DeleteFunc(s.large, func(i uint64, _ raft.Log) bool { return i < s.first || i > s.last })
	for len(s.recent) > 0 && (len(s.seqs) == 0 || s.recent[len(s.recent)-1].Index > s.last) {
		s.bytes -= len(s.recent[len(s.recent)-1].Data)
		s.recent = s.recent[:len(s.recent)-1]
	}
	s.shrink()
}

// shrink drops entries from the cache that were removed or are too many.
func (s *Store) shrink() {
	n := 0
	for n < len(s.recent) && (s.recent[n].Index < s.first || s.bytes > s.opts.CacheBytes) {
		s.bytes -= len(s.recent[n].Data)
		s.recent[n] = raft.Log{}
		n++
	}
	s.recent = s.recent[n:]
}

// Close closes the log.
func (s *Store) Close() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	return s.log.Close()
}

// FirstIndex returns the index of the first entry, 0 if there is none.
func (s *Store) FirstIndex() (uint64, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.first, nil
}

// LastIndex returns the index of the last entry, 0 if there is none.
func (s *Store) LastIndex() (uint64, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.last, nil
}

// Bytes returns the size of the log's files.
func (s *Store) Bytes() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var n int64
	for _, g := range s.log.Segments() {
		n += g.Size
	}
	return n
}

// StoreLog stores an entry.
func (s *Store) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

// StoreLogs stores entries. They are durable when it returns. The store keeps the entries'
// data in memory, so the caller must not change them. If there is a gap behind the last entry
// of the log, a snapshot has what is missing and everything before it: the older entries are
// removed. After an error none of the entries is stored. With Options.Stop, entries that replace
// removed ones are stored again after a failure.
func (s *Store) StoreLogs(logs []*raft.Log) error {
	return s.retry(func() (again bool, err error) {
		s.writing.Lock()
		defer s.writing.Unlock()
		err = s.storeLogs(logs)
		again = s.replace && !errors.Is(err, ErrOrder) && !errors.Is(err, appendlog.ErrRecordTooLarge)
		s.replace = s.replace && err != nil
		return again, err
	})
}

// retry calls f until it succeeds or does not want to be called again, or until Options.Stop.
func (s *Store) retry(f func() (again bool, err error)) error {
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		again, err := f()
		if err == nil || !again || s.opts.Stop == nil || errors.Is(err, errClosed) {
			return err
		}
		select {
		case <-time.After(wait):
		case <-s.opts.Stop:
			s.writing.Lock()
			defer s.writing.Unlock()
			s.refused = true
			return err
		}
	}
}

func (s *Store) storeLogs(logs []*raft.Log) error {
	if err := s.writable(); err != nil {
		return err
	}
	before := s.last
	for i, l := range logs {
		if i == 0 && len(s.seqs) > 0 && l.Index <= before || i > 0 && l.Index != before+1 {
			return fmt.Errorf("%w: %d after %d", ErrOrder, l.Index, before)
		}
		before = l.Index
	}
	if len(s.seqs) > 0 && len(logs) > 0 && logs[0].Index > s.last+1 {
		if err := s.cut(s.first, s.last); err != nil {
			return err
		}
	}
	start := s.last
	for len(logs) > 0 {
		var records [][]byte
		size := 0
		for len(records) < len(logs) && (size == 0 || size+len(logs[len(records)].Data) < batchBytes) {
			records = append(records, encode(logs[len(records)]))
			size += len(records[len(records)-1])
		}
		at, err := s.append(records)
		if err != nil {
			if !errors.Is(err, appendlog.ErrRecordTooLarge) {
				s.fail(err, start, start)
			}
			return err
		}
		s.mu.Lock()
		s.places = append(s.places, at)
		for i, l := range logs[:len(records)] {
			s.add(*l, len(l.Data), at.Seq+uint64(i))
			s.recent = append(s.recent, *l)
			s.bytes += len(l.Data)
		}
		s.shrink()
		s.mu.Unlock()
		logs = logs[len(records):]
	}
	return nil
}

// append writes records durably. s.writing is locked.
func (s *Store) append(records [][]byte) (appendlog.Position, error) {
	if s.opts.Trace {
		defer trace.StartRegion(context.Background(), "replica.sync").End()
	}
	at, err := s.log.AppendBatch(records)
	if err == nil && s.opts.Written != nil {
		segments := s.log.Segments()
		err = s.opts.Written(segments[len(segments)-1])
	}
	return at, err
}

// writable opens the log again after a failure. s.writing is locked.
func (s *Store) writable() error {
	if s.closed || s.refused {
		return fmt.Errorf("raftlog: %w", errClosed)
	}
	if s.broken == nil {
		return nil
	}
	_ = s.log.Close() // it has failed
	if err := s.load(); err != nil {
		return errors.Join(s.broken, err)
	}
	if s.last < s.least {
		return fmt.Errorf("raftlog: %s ends at entry %d, and %d was durable", s.dir, s.last, s.least)
	}
	if s.last > s.most {
		if err := s.cut(s.most+1, s.last); err != nil {
			return err
		}
	}
	s.broken = nil
	return nil
}

// fail records that the log must be opened again, and that it then has the entries up to least, and
// none after most that counts. s.writing is locked.
func (s *Store) fail(err error, least, most uint64) {
	if s.broken == nil {
		s.most, s.least = most, least
	}
	s.broken = err
}

var errClosed = errors.New("the store is closed")

// DeleteRange removes the entries from low to high, both included, at the front or at the
// end of the log. The removal is durable when it returns. With Options.Stop, a removal at the
// end is repeated after a failure: raft would go on with entries that may be gone.
func (s *Store) DeleteRange(low, high uint64) error {
	return s.retry(func() (again bool, err error) {
		s.writing.Lock()
		defer s.writing.Unlock()
		again = len(s.seqs) > 0 && high >= s.last
		err = s.deleteRange(low, high)
		s.replace = s.replace || again && err == nil
		return again, err
	})
}

func (s *Store) deleteRange(low, high uint64) error {
	if err := s.writable(); err != nil {
		return err
	}
	if len(s.seqs) == 0 || low > high || high < s.first || low > s.last {
		return nil
	}
	if low > s.first && high < s.last {
		return fmt.Errorf("raftlog: DeleteRange(%d, %d) is inside of the entries %d to %d", low, high, s.first, s.last)
	}
	return s.cut(low, high)
}

// cut removes entries and trims the log. s.writing is locked.
func (s *Store) cut(low, high uint64) error {
	front := low <= s.first
	var rest [][]byte
	if front {
		// The settings are appended again, so that the trim does not remove them.
		for k, v := range s.keys {
			rest = append(rest, encodeSet(k, v))
		}
	}
	p := binary.LittleEndian.AppendUint64([]byte{kindRemove}, low)
	rest = append(rest, binary.LittleEndian.AppendUint64(p, high))
	at, err := s.append(rest)
	if err != nil {
		least := s.last
		if high >= s.last {
			least = max(low, 1) - 1
		}
		s.fail(err, least, s.last)
		return err
	}
	s.mu.Lock()
	s.remove(low, high)
	s.cuts++
	if len(s.seqs) > 0 {
		at = appendlog.Position{Seq: min(at.Seq, s.seqs[0])}
	}
	s.mu.Unlock()
	s.readMu.Lock()
	s.ahead = [4][]raft.Log{}
	s.readMu.Unlock()
	if !front {
		return nil
	}
	if err := s.log.Trim(at); err != nil {
		return err
	}
	oldest := s.log.Segments()[0].Index
	s.mu.Lock()
	defer s.mu.Unlock()
	s.places = slices.DeleteFunc(s.places, func(p appendlog.Position) bool { return p.Segment < oldest })
	return nil
}

// Set stores a setting durably.
func (s *Store) Set(key, value []byte) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := s.writable(); err != nil {
		return err
	}
	if _, err := s.append([][]byte{encodeSet(string(key), value)}); err != nil {
		s.fail(err, s.last, s.last)
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys[string(key)] = append([]byte{}, value...)
	return nil
}

// Get returns a setting, and ErrKeyNotFound if it was never set.
func (s *Store) Get(key []byte) ([]byte, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	v, ok := s.keys[string(key)]
	if !ok {
		return nil, ErrKeyNotFound
	}
	return append([]byte{}, v...), nil
}

// keyTerm is raft's setting that must be stored.
const keyTerm = "CurrentTerm"

// SetUint64 stores a number durably. For raft's term see Options.Stop.
func (s *Store) SetUint64(key []byte, v uint64) error {
	err := s.retry(func() (again bool, err error) {
		return string(key) == keyTerm, s.Set(key, binary.BigEndian.AppendUint64(nil, v))
	})
	if err != nil && string(key) == keyTerm && s.stopped() {
		return nil // raft would end the process; it stores no vote and no entries of that term
	}
	return err
}

// stopped reports whether nothing more is stored.
func (s *Store) stopped() bool {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.refused || s.closed
}

// GetUint64 returns a number, and ErrKeyNotFound if it was never set.
func (s *Store) GetUint64(key []byte) (uint64, error) {
	v, err := s.Get(key)
	if err != nil {
		return 0, err
	}
	if len(v) != 8 {
		return 0, fmt.Errorf("raftlog: the setting %q is not a number", key)
	}
	return binary.BigEndian.Uint64(v), nil
}
