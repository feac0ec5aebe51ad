// SPDX-License-Identifier: MIT

package replica

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/raft"

	"github.com/ringside-io/ringside/replica/internal/raftlog"
)

// seal compares the number of the directory with that in raft's log and in data/, and stores it where it
// is missing because the directory is new or of an earlier version. It returns an error if raft's log
// was lost, or was replaced by another or an older one: this node would vote without what it acknowledged.
func (ms *membership) seal(store *raftlog.Store) error {
	log := filepath.Join(ms.dir, "raft")
	own, err := store.GetUint64([]byte(sealKey))
	if fresh, err := ms.unidentified(store); err != nil {
		return err
	} else if fresh {
		if err := ms.save(); err != nil { // before its number is anywhere else
			return err
		}
	}
	switch {
	case err == nil && own != ms.directory:
		return fmt.Errorf("replica: %s belongs to another directory than %s: %s", log, ms.path(), rejoin)
	case errors.Is(err, raftlog.ErrKeyNotFound) && ms.sealed:
		return fmt.Errorf("replica: %s has lost raft's log, and with it commits that this node may have acknowledged: %s", log, rejoin)
	case err != nil && !errors.Is(err, raftlog.ErrKeyNotFound):
		return err
	}
	if err := ms.sealData(); err != nil {
		return err
	}
	if ms.mark, err = openMark(filepath.Join(ms.dir, markFile), ms.directory, ms.disk, ms.log); err != nil {
		return err
	}
	if err := ms.compareLog(store); err != nil {
		return fmt.Errorf("replica: %s: %w: %s", log, err, rejoin)
	}
	if own == 0 {
		if err := store.SetUint64([]byte(sealKey), ms.directory); err != nil {
			return err
		}
	}
	if ms.sealed {
		return nil
	}
	ms.sealed = true
	return ms.save()
}

// unidentified reports whether the directory is new and has no identity yet. It returns an error if its log was
// used. A node that was killed when it was new has set the first term at most.
func (ms *membership) unidentified(store *raftlog.Store) (bool, error) {
	if _, err := os.Stat(ms.path()); !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	last, err := store.LastIndex()
	term, terr := store.GetUint64([]byte("CurrentTerm"))
	if errors.Is(terr, raftlog.ErrKeyNotFound) {
		terr = nil
	}
	snapshot, serr := newestSnapshot(filepath.Join(ms.dir, "raft"))
	if err = errors.Join(err, terr, serr); err == nil && (last > 0 || term > 1 || snapshot > 0) {
		err = fmt.Errorf("replica: %s is missing, and raft's log is not: without it this node does not know whose votes count: %s", ms.path(), rejoin)
	}
	return err == nil, err
}

// sealData compares the number in data/.
func (ms *membership) sealData() error {
	path := filepath.Join(ms.data, sealFile)
	want := fmt.Sprintf("%016x\n", ms.directory)
	p, err := os.ReadFile(path)
	switch {
	case err == nil && string(p) == want:
		return nil
	case err == nil && len(p) == len(want):
		return fmt.Errorf("replica: %s belongs to another directory than %s: put back what belongs here, or empty it, and this node fetches the databases from the others", ms.data, ms.path())
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return err
	}
	return ms.disk.writeFile(path, []byte(want)) // data/ is empty, or a power cut has left no content
}

// compareLog returns an error if raft's log, with its snapshots, is shorter than it was, or is another one.
func (ms *membership) compareLog(store *raftlog.Store) error {
	last, err := store.LastIndex()
	if err != nil {
		return err
	}
	first, err := store.FirstIndex()
	if err != nil {
		return err
	}
	snapshot, err := newestSnapshot(filepath.Join(ms.dir, "raft"))
	if err != nil {
		return err
	}
	m := ms.mark.state
	least := max(ms.dirs.Place>>12, ms.dirs.Config, m.last)
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
