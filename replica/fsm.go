// SPDX-License-Identifier: MIT

package replica

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"runtime/trace"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/ringside-io/ringside/appendlog"
)

// A raft entry holds operations, one after the other:
//
//	kind, 1 byte; proposal, 16 bytes; length of the rest, 4 bytes; the rest
//
// Numbers are little endian.
const opHeader = 1 + 16 + 4

const (
	opCluster = 'I' // identity of the cluster, 8 bytes
	opMember  = 'M' // index of the configuration, 8 bytes; the directory of a member, 8 bytes; the member's ID
	opCreate  = 'C' // page size, length of the name, name, pages
	opDelete  = 'D' // database
	opTxn     = 'T' // see txn.encode
	opPart    = 'P' // of a restored file: its number, 16 bytes; offset, 8 bytes; pages
	opSum     = 'V' // a check, 16 bytes; a database, 8 bytes
	opWhole   = 'W' // its number; checksum; page size; the database's name, "" to remove the parts
)

// proposalID identifies an operation: 8 random bytes, chosen when the node starts, and a
// number.
type proposalID [2]uint64

func appendOp(p []byte, kind byte, id proposalID, rest []byte) []byte {
	p = append(p, kind)
	p = binary.LittleEndian.AppendUint64(p, id[0])
	p = binary.LittleEndian.AppendUint64(p, id[1])
	p = binary.LittleEndian.AppendUint32(p, uint32(len(rest)))
	return append(p, rest...)
}

type op struct {
	kind byte
	id   proposalID
	rest []byte
}

var errEntry = errors.New("replica: raft's log has an entry of another version")

// nextOp decodes the first operation of an entry and returns the rest.
func nextOp(p []byte) (o op, tail []byte, err error) {
	if len(p) < opHeader {
		return o, nil, errEntry
	}
	o = op{kind: p[0], id: proposalID{binary.LittleEndian.Uint64(p[1:]), binary.LittleEndian.Uint64(p[9:])}}
	n := uint64(binary.LittleEndian.Uint32(p[17:]))
	if p = p[opHeader:]; n > uint64(len(p)) {
		return o, nil, errEntry
	}
	o.rest = p[:n]
	return o, p[n:], nil
}

// txn is a transaction: the new content of the pages that it changed.
type txn struct {
	db            uint64
	seq           uint64 // the database's number of transactions before
	before, after uint64 // sums of the database
	pageSize      uint32
	pages         uint32 // size of the database after
	pgnos         []uint32
	changes       [][]byte // of each page, see appendChange
	content       [][]byte // of each page; nil but in the result of database.merge
	sums          []uint64 // of the content; nil if they are not known
}

const txnHeader = 4*8 + 3*4

func (t *txn) encode() []byte {
	size := txnHeader + 8*len(t.pgnos)
	for _, change := range t.changes {
		size += len(change)
	}
	p := make([]byte, 0, size)
	for _, v := range []uint64{t.db, t.seq, t.before, t.after} {
		p = binary.LittleEndian.AppendUint64(p, v)
	}
	for _, v := range []uint32{t.pageSize, t.pages, uint32(len(t.pgnos))} {
		p = binary.LittleEndian.AppendUint32(p, v)
	}
	for i, v := range t.pgnos {
		p = binary.LittleEndian.AppendUint32(p, v)
		p = binary.LittleEndian.AppendUint32(p, uint32(len(t.changes[i])))
	}
	for _, change := range t.changes {
		p = append(p, change...)
	}
	return p
}

// decodeTxn decodes the output of encode. The transaction refers to p.
func decodeTxn(p []byte) (*txn, error) {
	if len(p) < txnHeader {
		return nil, errEntry
	}
	t := &txn{db: binary.LittleEndian.Uint64(p), seq: binary.LittleEndian.Uint64(p[8:]),
		before: binary.LittleEndian.Uint64(p[16:]), after: binary.LittleEndian.Uint64(p[24:]),
		pageSize: binary.LittleEndian.Uint32(p[32:]), pages: binary.LittleEndian.Uint32(p[36:])}
	n := uint64(binary.LittleEndian.Uint32(p[40:]))
	p = p[txnHeader:]
	size := t.pageSize
	if size < 512 || size > 65536 || size&(size-1) != 0 || n == 0 || 8*n > uint64(len(p)) || t.pages == 0 {
		return nil, errEntry
	}
	t.pgnos, t.changes = make([]uint32, n), make([][]byte, n)
	rest := p[8*n:]
	for i := range t.pgnos {
		t.pgnos[i] = binary.LittleEndian.Uint32(p[8*i:])
		length := binary.LittleEndian.Uint32(p[8*i+4:])
		if t.pgnos[i] == 0 || length > size || uint64(length) > uint64(len(rest)) {
			return nil, errEntry
		}
		t.changes[i], rest = rest[:length:length], rest[length:]
	}
	if len(rest) > 0 {
		return nil, errEntry
	}
	return t, nil
}

// appendChange appends the difference between two contents of a page: runs of changed bytes,
// each with its distance from the end of the run before, and its length. If that would be
// more than half a page, the change is the page itself. The change is otherwise shorter than a
// page, so the length tells the form.
func appendChange(p, old, page []byte) []byte {
	const chunk = 256
	differ := func(i int) bool {
		return i < len(page) && binary.LittleEndian.Uint64(old[i:]) != binary.LittleEndian.Uint64(page[i:])
	}
	begin, done := len(p), 0
	for i := 0; i < len(page); {
		if i%chunk == 0 && bytes.Equal(old[i:i+chunk], page[i:i+chunk]) {
			i += chunk
			continue
		}
		if !differ(i) {
			i += 8
			continue
		}
		end := i + 8
		for differ(end) || differ(end+8) {
			end += 8
		}
		p = binary.AppendUvarint(p, uint64(i-done))
		p = binary.AppendUvarint(p, uint64(end-i))
		p = append(p, page[i:end]...)
		if len(p)-begin > len(page)/2 {
			return append(p[:begin], page...)
		}
		i, done = end, end
	}
	return p
}

// applyChange applies the output of appendChange that is not a whole page.
func applyChange(page, change []byte) error {
	for at := uint64(0); len(change) > 0; {
		skip, n := binary.Uvarint(change)
		if n <= 0 || skip > uint64(len(page)) {
			return errEntry
		}
		length, m := binary.Uvarint(change[n:])
		if change = change[max(n+m, 0):]; m <= 0 || length > uint64(len(change)) || at+skip+length > uint64(len(page)) {
			return errEntry
		}
		at += skip
		copy(page[at:], change[:length])
		at, change = at+length, change[length:]
	}
	return nil
}

// fsm is the node as raft's state machine.
type fsm struct{ *Node }

var _ raft.BatchingFSM = fsm{}

func (f fsm) Apply(l *raft.Log) any { return f.ApplyBatch([]*raft.Log{l})[0] }

// job is a transaction to be applied.
type job struct {
	at   Position
	id   proposalID
	t    *txn
	mine *proposal // nil if it is not from this node, or its writer has given up
}

// ApplyBatch applies entries. It applies the transactions of each database in order, and those
// of different databases concurrently.
func (f fsm) ApplyBatch(logs []*raft.Log) []any {
	if f.opts.Trace {
		defer trace.StartRegion(context.Background(), "replica.apply").End()
	}
	if f.halted {
		return make([]any, len(logs))
	}
	f.store.note()
	now := time.Now()
	f.moved.Store(&now)
	f.began.Store(logs[len(logs)-1].Index) // before the first commit is acknowledged
	jobs := make(map[*database][]job)
	size := 0 // of the entries in jobs
	flush := func() {
		f.run(jobs)
		clear(jobs)
		size = 0
	}
	for _, l := range logs {
		if l.Type == raft.LogConfiguration {
			if err := f.configured(l.Index, raft.DecodeConfiguration(l.Data)); err != nil {
				f.log.Warn("replica: the directories of the members cannot be stored", "error", err)
			}
		}
		if l.Type != raft.LogCommand || f.bug == bugSkipEntry && f.leading.Load() == nil && l.Index%7 == 0 {
			continue
		}
		data, err := f.content(l)
		if err != nil {
			f.halted = true
			return make([]any, len(logs))
		}
		if size += len(data); size > requestBytes {
			flush()
			size = len(data)
		}
		for n := uint64(0); len(data) > 0; n++ {
			o, tail, err := nextOp(data)
			if err != nil {
				// All nodes have the same entry, so none can continue.
				panic(fmt.Sprintf("%v: index %d", err, l.Index))
			}
			data = tail
			at := Position{Term: l.Term, Index: l.Index}
			mine := f.claim(o.id)
			switch o.kind {
			case opTxn:
				t, err := decodeTxn(o.rest)
				if err != nil {
					panic(fmt.Sprintf("%v: index %d", err, l.Index))
				}
				db := f.byID(t.db)
				if db == nil {
					mine.finish(errDeleted)
					continue
				}
				jobs[db] = append(jobs[db], job{at, o.id, t, mine})
			default:
				flush()
				mine.finish(f.carryOut(o, at, n))
			}
		}
	}
	flush()
	f.advance(logs[len(logs)-1].Index)
	if !f.swept && f.recovered.Load() {
		f.swept = true
		f.sweep()
	}
	return make([]any, len(logs))
}

// content returns the data of an entry, which raftLog may have left out. The log cannot be read while its disk
// is full, so content tries again until the node is closed.
func (f fsm) content(l *raft.Log) ([]byte, error) {
	e := raft.Log{Index: l.Index, Term: l.Term, Type: l.Type, Data: l.Data} // raft keeps l
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := f.store.fill(&e)
		switch {
		case err == nil:
			return e.Data, nil
		case errors.Is(err, raft.ErrLogNotFound):
			panic(fmt.Sprintf("replica: entry %d, which is committed: %v", l.Index, err)) // as raft does
		}
		select {
		case <-time.After(wait):
		case <-f.closing.Done():
			return nil, err
		}
	}
}

func (f fsm) run(jobs map[*database][]job) {
	if len(jobs) == 1 {
		for db, list := range jobs {
			db.apply(list)
		}
		return
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for db, list := range jobs {
		if db.light(list) {
			db.apply(list)
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			db.apply(list)
			<-slots
		})
	}
	wg.Wait()
}

// light reports whether transactions are applied without access to files: the connections of their
// proposers write them, or they are deferred.
func (db *database) light(list []job) bool {
	if !slices.ContainsFunc(list, func(j job) bool { return j.mine == nil }) {
		return true
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.loaded && !db.node.prompt.Load()
}

// carryOut executes an operation on the list of databases.
func (f fsm) carryOut(o op, at Position, n uint64) error {
	switch o.kind {
	case opCluster:
		if len(o.rest) != 8 {
			return errEntry
		}
		return f.join(binary.LittleEndian.Uint64(o.rest))
	case opMember:
		if len(o.rest) < 16 {
			return errEntry
		}
		return f.recordMember(at.Index<<12|n+1, binary.LittleEndian.Uint64(o.rest), binary.LittleEndian.Uint64(o.rest[8:]), string(o.rest[16:]))
	case opCreate:
		if len(o.rest) < 8 {
			return errEntry
		}
		size, length := binary.LittleEndian.Uint32(o.rest), uint64(binary.LittleEndian.Uint32(o.rest[4:]))
		rest := o.rest[8:]
		if length > uint64(len(rest)) || size == 0 || (uint64(len(rest))-length)%uint64(size) != 0 {
			return errEntry
		}
		return f.created(at, at.Index<<12|n, string(rest[:length]), size, rest[length:])
	case opPart:
		return f.part(o.rest)
	case opSum:
		return f.compute(o.rest)
	case opWhole:
		return f.whole(at, at.Index<<12|n, o.rest)
	case opDelete:
		if len(o.rest) != 8 {
			return errEntry
		}
		return f.deleted(binary.LittleEndian.Uint64(o.rest))
	}
	return errEntry
}

// manifest is the content of a snapshot. The pages are in the databases' files.
type manifest struct {
	Version   int             `json:"version"`
	Cluster   uint64          `json:"cluster"`
	Index     uint64          `json:"index"` // of the last entry that was applied
	Databases []databaseState `json:"databases"`

	Directories directories `json:"directories"`
}

type databaseState struct {
	ID       uint64   `json:"id"`
	Name     string   `json:"name"`
	PageSize uint32   `json:"pageSize"`
	Position Position `json:"position"`
}

// Snapshot returns an error while a database is not complete on this node: raft would drop
// log entries that are needed to complete it.
func (f fsm) Snapshot() (raft.FSMSnapshot, error) {
	if f.halted {
		return nil, net.ErrClosed
	}
	f.flush() // Persist syncs the files
	f.mu.RLock()
	defer f.mu.RUnlock()
	m := manifest{Version: 1, Cluster: f.cluster, Index: f.applied.Load(), Directories: f.dirs}
	for _, db := range f.dbs {
		db.mu.Lock()
		state, broken := databaseState{db.id, db.name, db.pageSize, db.pos}, db.broken
		db.mu.Unlock()
		if broken != nil {
			return nil, fmt.Errorf("replica: no snapshot while %s is not whole: %w", db.name, broken)
		}
		m.Databases = append(m.Databases, state)
	}
	slices.SortFunc(m.Databases, func(a, b databaseState) int { return strings.Compare(a.Name, b.Name) })
	return &snapshot{f.Node, m, f.received.Load()}, nil
}

type snapshot struct {
	n        *Node
	m        manifest
	received uint64 // the node's count when it was taken
}

// Persist makes changes since the last snapshot durable, and writes the manifest.
func (s *snapshot) Persist(sink raft.SnapshotSink) error {
	if s.n.opts.Trace {
		defer trace.StartRegion(context.Background(), "replica.snapshot").End()
	}
	if sink, ok := sink.(*snapshotSink); ok {
		sink.own = true
	}
	err := s.n.syncFiles()
	if err == nil {
		err = json.NewEncoder(sink).Encode(s.m)
	}
	if err != nil {
		return errors.Join(err, sink.Cancel())
	}
	if err := sink.Close(); err != nil {
		return err
	}
	if s.n.received.Load() != s.received {
		return nil // the files of another node's snapshot are fetched meanwhile
	}
	return s.n.setFetching(false)
}

func (s *snapshot) Release() {}

// Restore reads a manifest: at the start that of this node, later that of the leader, whose
// databases are fetched before Restore returns.
func (f fsm) Restore(r io.ReadCloser) error {
	defer r.Close()
	var m manifest
	if err := json.NewDecoder(r).Decode(&m); err != nil {
		return fmt.Errorf("replica: the snapshot's manifest: %w", err)
	}
	if m.Version != 1 {
		return fmt.Errorf("replica: the snapshot's manifest has version %d", m.Version)
	}
	return f.restore(m)
}

// syncFiles makes durable the database files that changed since the last call, and the removal
// of deleted ones.
func (n *Node) syncFiles() error {
	if n.bug == bugNoSync {
		return nil
	}
	for _, db := range n.databases() {
		if !db.dirty.Swap(false) {
			continue
		}
		for _, name := range []string{db.path + "-wal", db.path} {
			if err := n.syncFile(name); err != nil && !errors.Is(err, os.ErrNotExist) {
				db.dirty.Store(true)
				return err
			}
		}
	}
	n.mu.Lock()
	dirs := n.emptied
	n.emptied = nil
	n.mu.Unlock()
	for dir := range dirs {
		if err := n.syncFile(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			n.mu.Lock()
			for dir := range dirs {
				n.empty(dir)
			}
			n.mu.Unlock()
			return err
		}
	}
	return nil
}

// empty notes that a database in a directory was removed. n.mu is locked.
func (n *Node) empty(dir string) {
	if n.emptied == nil {
		n.emptied = make(map[string]struct{})
	}
	n.emptied[dir] = struct{}{}
}

// disk holds a test's hooks for syncs, and who notices those that hang. The zero value does nothing.
type disk struct {
	around  func(path string, sync func() error) error
	written func(appendlog.SegmentInfo) error // see raftlog.Options
	fitness *fitness                          // notices calls that hang
}

// sync syncs a file by calling f.
func (d *disk) sync(path string, f func() error) error {
	defer d.fitness.begin(false)()
	return d.hooked(path, f)
}

func (d *disk) hooked(path string, f func() error) error {
	if d.around != nil {
		return d.around(path, f)
	}
	return f()
}

func (n *Node) syncFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(n.opts.disk.sync(name, f.Sync), f.Close())
}
