// SPDX-License-Identifier: MIT

package replica

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/ringside-io/ringside/replica/internal/raftlog"
)

// identity is stored in node.json, so that another node does not use the directory by mistake.
//
// The number of the directory is also stored in each part that the node cannot do without: in raft's
// log, as a setting, and in data/. So a part of another directory, or a log that was lost, is
// recognized. log.mark tells how far raft's log has come, so an older copy of it is recognized too.
type identity struct {
	ID          string      `json:"id"`
	Cluster     uint64      `json:"cluster"`
	Directory   uint64      `json:"directory"`
	Directories directories `json:"directories"`
	Fetching    bool        `json:"fetching,omitempty"` // the files of a snapshot are being fetched
	Sealed      bool        `json:"sealed,omitempty"`   // raft's log and data/ have the number
	Moving      bool        `json:"moving,omitempty"`   // Recover has begun and not ended
	Renewed     uint64      `json:"renewed,omitempty"`  // the cluster that Recover makes
}

// The names of what tells the parts of a directory apart.
const (
	identityFile = "node.json"
	markFile     = "log.mark"
	sealFile     = ".ringside-replica" // in data/; no database has this name
	sealKey      = "Directory"         // setting of raft's log
)

const rejoin = "put back what belongs here, or remove this member on the leader, empty the directory and add it again as a new member"

func (n *Node) identityPath() string { return filepath.Join(n.opts.Dir, identityFile) }

func (n *Node) identify() error {
	p, err := os.ReadFile(n.identityPath())
	if errors.Is(err, os.ErrNotExist) {
		n.directory = rand.Uint64() | 1
		return nil // seal saves it
	}
	var id identity
	if err == nil {
		err = json.Unmarshal(p, &id)
	}
	if err != nil {
		return fmt.Errorf("replica: %s: %w", n.identityPath(), err)
	}
	if id.ID != n.opts.ID {
		return fmt.Errorf("replica: %s belongs to node %q, and Options.ID is %q", n.opts.Dir, id.ID, n.opts.ID)
	}
	n.cluster, n.dirs, n.directory, n.fetching, n.sealed = id.Cluster, id.Directories, id.Directory, id.Fetching, id.Sealed
	n.moving, n.renewed = id.Moving, id.Renewed
	if n.directory == 0 { // of an earlier version
		n.directory = rand.Uint64() | 1
		return n.saveIdentity()
	}
	return nil
}

// saveIdentity writes the identity. n.mu is locked, or the node is not open yet.
func (n *Node) saveIdentity() error {
	p, err := json.Marshal(identity{n.opts.ID, n.cluster, n.directory, n.dirs, n.fetching, n.sealed, n.moving, n.renewed})
	if err != nil {
		return err
	}
	return n.writeFile(n.identityPath(), p)
}

// seal compares the number of the directory with that in raft's log and in data/, and stores it where it
// is missing because the directory is new or of an earlier version. It returns an error if raft's log
// was lost, or was replaced by another or an older one: this node would vote without what it acknowledged.
func (n *Node) seal(store *raftlog.Store) error {
	log := filepath.Join(n.opts.Dir, "raft")
	own, err := store.GetUint64([]byte(sealKey))
	if fresh, err := n.unidentified(store); err != nil {
		return err
	} else if fresh {
		if err := n.saveIdentity(); err != nil { // before its number is anywhere else
			return err
		}
	}
	switch {
	case err == nil && own != n.directory:
		return fmt.Errorf("replica: %s belongs to another directory than %s: %s", log, n.identityPath(), rejoin)
	case errors.Is(err, raftlog.ErrKeyNotFound) && n.sealed:
		return fmt.Errorf("replica: %s has lost raft's log, and with it commits that this node may have acknowledged: %s", log, rejoin)
	case err != nil && !errors.Is(err, raftlog.ErrKeyNotFound):
		return err
	}
	if err := n.sealData(); err != nil {
		return err
	}
	if n.mark, err = openMark(filepath.Join(n.opts.Dir, markFile), n.directory, &n.opts.disk, n.log); err != nil {
		return err
	}
	if err := n.compareLog(store); err != nil {
		return fmt.Errorf("replica: %s: %w: %s", log, err, rejoin)
	}
	if own == 0 {
		if err := store.SetUint64([]byte(sealKey), n.directory); err != nil {
			return err
		}
	}
	if n.sealed {
		return nil
	}
	n.sealed = true
	return n.saveIdentity()
}

// unidentified reports whether the directory is new and has no identity yet. It returns an error if its log was
// used. A node that was killed when it was new has set the first term at most.
func (n *Node) unidentified(store *raftlog.Store) (bool, error) {
	if _, err := os.Stat(n.identityPath()); !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	last, err := store.LastIndex()
	term, terr := store.GetUint64([]byte("CurrentTerm"))
	if errors.Is(terr, raftlog.ErrKeyNotFound) {
		terr = nil
	}
	snapshot, serr := newestSnapshot(filepath.Join(n.opts.Dir, "raft"))
	if err = errors.Join(err, terr, serr); err == nil && (last > 0 || term > 1 || snapshot > 0) {
		err = fmt.Errorf("replica: %s is missing, and raft's log is not: without it this node does not know whose votes count: %s", n.identityPath(), rejoin)
	}
	return err == nil, err
}

// sealData compares the number in data/.
func (n *Node) sealData() error {
	path := filepath.Join(n.data, sealFile)
	want := fmt.Sprintf("%016x\n", n.directory)
	p, err := os.ReadFile(path)
	switch {
	case err == nil && string(p) == want:
		return nil
	case err == nil && len(p) == len(want):
		return fmt.Errorf("replica: %s belongs to another directory than %s: put back what belongs here, or empty it, and this node fetches the databases from the others", n.data, n.identityPath())
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return err
	}
	return n.writeFile(path, []byte(want)) // data/ is empty, or a power cut has left no content
}

// compareLog returns an error if raft's log, with its snapshots, is shorter than it was, or is another one.
func (n *Node) compareLog(store *raftlog.Store) error {
	last, err := store.LastIndex()
	if err != nil {
		return err
	}
	first, err := store.FirstIndex()
	if err != nil {
		return err
	}
	snapshot, err := newestSnapshot(filepath.Join(n.opts.Dir, "raft"))
	if err != nil {
		return err
	}
	m := n.mark.state
	least := max(n.dirs.Place>>12, n.dirs.Config, m.last)
	term, err := store.GetUint64([]byte("CurrentTerm"))
	if err != nil && !errors.Is(err, raftlog.ErrKeyNotFound) {
		return err
	}
	switch {
	case max(last, snapshot) < least:
		return fmt.Errorf("raft's log ends at entry %d, and this node had %d: it was replaced by an older copy", max(last, snapshot), least)
	case term < m.term:
		return fmt.Errorf("raft's log is of term %d, and this node was in %d: it was replaced by an older copy", term, m.term)
	case first > snapshot+1:
		return fmt.Errorf("raft's log begins at entry %d, and the newest snapshot is of %d: the snapshots were lost, or replaced by older ones", first, snapshot)
	}
	if m.last < first || m.last > last || m.last == 0 || m.lastTerm == 0 {
		return nil
	}
	var l raft.Log
	if err := store.GetLog(m.last, &l); err != nil {
		return err
	}
	if l.Term != m.lastTerm {
		return fmt.Errorf("entry %d of raft's log is of term %d, and this node had one of %d: the log was replaced by another", m.last, l.Term, m.lastTerm)
	}
	return nil
}

// newestSnapshot returns the index of the newest snapshot in raft's directory, 0 without one.
func newestSnapshot(dir string) (uint64, error) {
	files, err := raft.NewFileSnapshotStore(dir, 2, io.Discard)
	if err != nil {
		return 0, err
	}
	list, err := files.List()
	if err != nil || len(list) == 0 {
		return 0, err
	}
	return list[0].Index, nil
}

// isSeal reports whether a name is that of the file in data/ that is no database.
func isSeal(name string) bool { return strings.HasPrefix(name, sealFile) }

// logMark is a file beside raft's log that tells how far the log has come. It is written after each write of
// the log, without a sync: it may be behind the log, and is never ahead. Before entries are removed
// at the end, it is set back durably.
type logMark struct {
	directory uint64
	disk      *disk
	log       *slog.Logger

	mu     sync.Mutex
	f      *os.File
	state  markState
	failed bool
}

type markState struct {
	last, lastTerm uint64 // the last entry
	term           uint64 // raft's term
}

const markSize = 5*8 + 4 // version, directory, state, checksum

func openMark(path string, directory uint64, d *disk, log *slog.Logger) (*logMark, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	m := &logMark{directory: directory, disk: d, log: log, f: f}
	var p [markSize]byte
	if _, err := f.ReadAt(p[:], 0); err != nil && err != io.EOF {
		return nil, errors.Join(err, f.Close())
	} else if err == io.EOF {
		return m, nil // new, or of a power cut
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(p[8*i:]) }
	if binary.LittleEndian.Uint32(p[40:]) != crc32.Checksum(p[:40], castagnoli) || word(0) != 1 {
		log.Warn("replica: the file that tells how far raft's log has come is damaged, and begins anew", "file", path)
		return m, nil
	}
	if word(1) != directory {
		return nil, errors.Join(fmt.Errorf("replica: %s belongs to another directory: %s", path, rejoin), f.Close())
	}
	m.state = markState{word(2), word(3), word(4)}
	return m, nil
}

// note changes the state. If it cannot be written, it stays behind the log.
func (m *logMark) note(change func(*markState)) error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.state
	if change(&m.state); m.state == old && !m.failed {
		return nil
	}
	p := binary.LittleEndian.AppendUint64(nil, 1)
	for _, v := range []uint64{m.directory, m.state.last, m.state.lastTerm, m.state.term} {
		p = binary.LittleEndian.AppendUint64(p, v)
	}
	_, err := m.f.WriteAt(binary.LittleEndian.AppendUint32(p, crc32.Checksum(p, castagnoli)), 0)
	if err != nil && !m.failed {
		m.log.Warn("replica: how far raft's log has come cannot be recorded", "error", err)
	}
	m.failed = err != nil
	return err
}

// setBack records durably that the entries from low on are removed.
func (m *logMark) setBack(low uint64) error {
	if m == nil {
		return nil
	}
	changed := false
	err := m.note(func(s *markState) {
		if changed = s.last >= low; changed {
			s.last, s.lastTerm = low-1, 0
		}
	})
	if err == nil && changed {
		err = m.disk.sync(m.f.Name(), m.f.Sync)
	}
	return err
}

func (m *logMark) Close() error {
	if m == nil {
		return nil
	}
	return m.f.Close()
}
