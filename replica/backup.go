// SPDX-License-Identifier: MIT

package replica

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// backupFile is the file in a backup's directory that lists its databases. The databases are
// in data/.
const backupFile = "backup.json"

// Backup writes all databases into a directory, which must be empty or missing: SQLite files
// in data/, and their positions and checksums in backup.json. Each database has its state at
// one moment after the call began. So it has all transactions that were acknowledged before the
// call. The moments of two databases may differ. The cluster continues to work. Backup needs a
// leader, which may be another node, and waits for one for at most five elections or five seconds. If Backup fails, the directory has no backup.json.
func (n *Node) Backup(ctx context.Context, dir string) error {
	if names, err := os.ReadDir(dir); err == nil && len(names) > 0 {
		return fmt.Errorf("replica: the directory of the backup, %s, is not empty", dir)
	}
	soon, cancel := context.WithTimeout(ctx, max(5*n.opts.Election, 5*time.Second))
	defer cancel()
	if err := n.WaitReady(soon); err != nil {
		return fmt.Errorf("replica: the backup needs a leader, see Recover if a majority is lost: %w", err)
	}
	if err := n.reads.fresh(soon, 0); err != nil {
		return fmt.Errorf("replica: the backup needs a leader, see Recover if a majority is lost: %w", err)
	}
	n.membership.mu.RLock()
	m := manifest{Version: 1, Cluster: n.membership.cluster, Index: n.progress.applied.Load()}
	n.membership.mu.RUnlock()
	folders := make(map[string]bool)
	for _, name := range n.List() {
		db, err := n.catalog.named(name)
		if err != nil {
			continue // deleted meanwhile
		}
		path := filepath.Join(dir, "data", filepath.FromSlash(name))
		folders[filepath.Dir(path)] = true
		err = n.opts.disk.mkdirAll(filepath.Dir(path))
		var pos Position
		if err == nil {
			pos, err = n.copyTo(ctx, db, path)
		}
		if errors.Is(err, errDeleted) {
			continue
		}
		if err != nil {
			return fmt.Errorf("replica: the backup of %s: %w", name, err)
		}
		m.Databases = append(m.Databases, databaseState{db.id, name, db.pageSize, pos})
	}
	for folder := range folders {
		if err := n.opts.disk.syncFile(folder); err != nil {
			return err
		}
	}
	if err := n.opts.disk.mkdirAll(dir); err != nil {
		return err
	}
	p, err := json.MarshalIndent(m, "", "\t")
	if err != nil {
		return err
	}
	return n.opts.disk.writeFile(filepath.Join(dir, backupFile), p)
}

// copyTo writes a database into a file, and syncs it.
func (n *Node) copyTo(ctx context.Context, db *database, path string) (_ Position, err error) {
	f, m, pos, err := n.repairs.imageOf(ctx, db.id, 0)
	if err != nil {
		return pos, err
	}
	defer func() { err = errors.Join(err, m.done(), f.close()) }()
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return pos, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	w := bufio.NewWriterSize(out, 256<<10)
	p := make([]byte, m.pageSize)
	var sum uint64
	for pgno := uint32(1); pgno <= m.pages; pgno++ {
		if err := ctx.Err(); err != nil {
			return pos, err
		}
		if err := m.read(pgno, p); err != nil {
			return pos, err
		}
		sum ^= pageSum(pgno, p)
		if _, err := w.Write(p); err != nil {
			return pos, err
		}
	}
	if sum != pos.Sum {
		n.repairs.differs(db.id, sum, pos)
		return pos, fmt.Errorf("%w: its pages have the checksum %016x instead of %016x", ErrDiffer, sum, pos.Sum)
	}
	return pos, errors.Join(w.Flush(), out.Sync())
}

// partBytes is how much of a restored file one raft entry has.
const partBytes = 2 << 20

// Restore creates the databases of a backup on all nodes. The leader must be this node. The
// cluster may be new, or have other databases: if a name of the backup exists, with other pages than
// the backup has, Restore returns an error before it restores anything. Each database appears when it
// is complete. After an error some databases may have been restored: Restore can be called again,
// also on the next leader, and restores the others.
func (n *Node) Restore(ctx context.Context, dir string) error {
	if err := n.role.writable(); err != nil {
		return err
	}
	p, err := os.ReadFile(filepath.Join(dir, backupFile))
	if err != nil {
		return fmt.Errorf("replica: not a backup: %w", err)
	}
	var m manifest
	if err := json.Unmarshal(p, &m); err != nil || m.Version != 1 {
		return fmt.Errorf("replica: %s does not belong to a backup of this version: %w", filepath.Join(dir, backupFile), errors.Join(err, errEntry))
	}
	var missing []databaseState
	for _, s := range m.Databases {
		if err := checkName(s.Name); err != nil {
			return err
		}
		pos, err := n.Position(s.Name)
		switch {
		case err != nil:
			missing = append(missing, s)
		case pos.Sum != s.Position.Sum:
			return fmt.Errorf("replica: the database %q already exists and differs from the backup, which has the checksum %016x instead of %016x: delete it, or restore into another cluster: %w", s.Name, s.Position.Sum, pos.Sum, os.ErrExist)
		}
	}
	for _, s := range missing {
		if err := n.restoreOne(ctx, filepath.Join(dir, "data", filepath.FromSlash(s.Name)), s); err != nil {
			return fmt.Errorf("replica: restoring %s: %w", s.Name, err)
		}
	}
	return nil
}

func (n *Node) restoreOne(ctx context.Context, path string, s databaseState) (err error) {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if s.PageSize < 512 || s.PageSize > 65536 {
		return errEntry
	}
	id := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, n.proposer.run), n.proposer.next.Add(1))
	defer func() {
		if err != nil { // without a name: removes the parts
			ctx, cancel := context.WithTimeout(n.life.closing, 10*time.Second)
			defer cancel()
			_ = n.proposer.commit(ctx, opWhole, append(slices.Clone(id), make([]byte, 12)...))
		}
	}()
	leader := n.role.leader()
	in := bufio.NewReaderSize(f, 256<<10)
	var sum uint64
	pgno := uint32(1)
	for at, end := int64(0), false; !end; {
		rest := binary.LittleEndian.AppendUint64(slices.Clone(id), uint64(at))
		part := make([]byte, max(partBytes/int(s.PageSize), 1)*int(s.PageSize))
		k, err := io.ReadFull(in, part)
		if end = err == io.EOF || err == io.ErrUnexpectedEOF; err != nil && !end {
			return err
		}
		if k%int(s.PageSize) != 0 {
			return fmt.Errorf("the file was changed: it ends after %d bytes, within a page of %d", at+int64(k), s.PageSize)
		}
		for i := 0; i < k; i += int(s.PageSize) {
			sum ^= pageSum(pgno, part[i:i+int(s.PageSize)])
			pgno++
		}
		if n.role.leader() != leader { // the parts may have been removed, see dropParts
			return n.role.notLeader()
		}
		if err := n.proposer.commit(ctx, opPart, append(rest, part[:k]...)); err != nil {
			return err
		}
		at += int64(k)
	}
	rest := binary.LittleEndian.AppendUint64(slices.Clone(id), s.Position.Sum)
	rest = binary.LittleEndian.AppendUint32(rest, s.PageSize)
	if sum != s.Position.Sum {
		return fmt.Errorf("the file was changed: its checksum is %016x instead of %016x", sum, s.Position.Sum)
	}
	if n.role.leader() != leader {
		return n.role.notLeader()
	}
	return n.proposer.commit(ctx, opWhole, append(rest, s.Name...))
}

// dropParts removes the parts of files that other processes have begun to restore, on all nodes. This node leads, so
// their restores have failed.
func (n *Node) dropParts() {
	parts, err := os.ReadDir(filepath.Join(n.opts.Dir, "staging"))
	if err != nil {
		return // there are none
	}
	for _, e := range parts {
		id, err := hex.DecodeString(e.Name())
		if err != nil || len(id) != 16 || binary.LittleEndian.Uint64(id) == n.proposer.run {
			continue
		}
		_ = n.proposer.commit(n.life.closing, opWhole, append(id, make([]byte, 12)...)) // the next leader tries again
	}
}
