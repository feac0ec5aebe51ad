// SPDX-License-Identifier: MIT

package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/raft"
	"github.com/ncruces/go-sqlite3"
)

// Loss says what a node has whose cluster has lost its majority, and what [Recover] would make of it.
type Loss struct {
	Members   []Member  // of the cluster; only this node stays
	LastEntry uint64    // index of the last entry of this node's log
	Term      uint64    // its term
	Appended  time.Time // when the leader of that time made it, by its clock; zero if it is not known
	Cluster   string    // identity of the cluster before, in hexadecimal
}

// String states what may be lost, in two sentences for each kind.
func (l Loss) String() string {
	var others []string
	for _, m := range l.Members {
		others = append(others, fmt.Sprintf("%s at %s", m.ID, m.Address))
	}
	at := "at an unknown time"
	if !l.Appended.IsZero() {
		at = "at " + l.Appended.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf(`this node's log ends with entry %d of term %d, which was made %s.
LOST: every commit that other members acknowledged after this entry and this node did not get.
KEPT: everything up to this entry, also commits whose callers got an uncertain error, or none.
The members were: %s. They must never be started again with their directories:
together they could go on as cluster %s, without the commits that the recovered one makes.`,
		l.LastEntry, l.Term, at, strings.Join(others, ", "), l.Cluster)
}

// Recover makes a node, which does not run, the only member of a new cluster, with the databases that it has. It
// is the way out when a majority of the members is lost for good. It calls confirm with what
// may be lost, before it changes anything, and returns the error of confirm. The cluster gets a new
// identity: members of the old one are refused. They have to join with empty directories, by AddMember.
//
// The options are those of Open. Options.Peers is not used: the node's address is Options.Advertise or
// Options.Listen. If Recover was interrupted, Open refuses the directory until Recover was called again.
func Recover(o Options, confirm func(Loss) error) (err error) {
	o.Peers = nil
	if o.Advertise == "" {
		o.Advertise = o.Listen
	}
	if err := o.check(); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(o.Dir, identityFile)); err != nil {
		return fmt.Errorf("replica: there is no node to recover in %s: %w", o.Dir, err)
	}
	n, err := newNode(o)
	if err != nil {
		return err
	}
	n.membership.recovering = true
	defer func() { err = errors.Join(err, n.Close()) }()
	if err := n.openLog(); err != nil {
		return err
	}
	files, err := raft.NewFileSnapshotStore(filepath.Join(n.opts.Dir, "raft"), 2, io.Discard)
	if err != nil {
		return err
	}
	loss, err := n.loss(files)
	if err != nil {
		return err
	}
	if err := confirm(loss); err != nil {
		return err
	}
	// From here on the directory is neither of the old cluster nor of the new one.
	n.membership.mu.Lock()
	n.membership.moving = true
	if n.membership.renewed == 0 {
		n.membership.renewed = rand.Uint64() | 1
	}
	err = n.membership.save()
	n.membership.mu.Unlock()
	if err != nil {
		return err
	}
	c := n.opts.raftConfig()
	members := raft.Configuration{Servers: []raft.Server{{ID: c.LocalID, Address: raft.ServerAddress(o.Advertise)}}}
	_, trans := raft.NewInmemTransport(raft.ServerAddress(o.Advertise))
	if err := raft.RecoverCluster(c, recoveringFSM{fsm{n}}, raftLog{n.store}, n.store, snapshotStore{files, n}, trans, members); err != nil {
		return fmt.Errorf("replica: recovering %s: %w", o.Dir, err)
	}
	n.membership.mu.Lock()
	defer n.membership.mu.Unlock()
	n.membership.cluster, n.membership.renewed, n.membership.moving, n.membership.fetching = n.membership.renewed, 0, false, false
	return n.membership.save()
}

// recoveringFSM is the state machine of a node that becomes the only member of a new cluster.
type recoveringFSM struct{ fsm }

// Snapshot is called when all entries are applied. It gives the cluster its new identity.
func (f recoveringFSM) Snapshot() (raft.FSMSnapshot, error) {
	f.catalog.settle()
	for _, db := range f.catalog.all() {
		db.mu.Lock()
		err := db.load()
		if db.ahead && err == nil {
			db.fail(fmt.Errorf("the pages of %s differ: their checksum is %016x instead of %016x", db.path, db.target, db.pos.Sum))
			err = db.broken
		}
		if err != nil {
			err = errors.Join(err, db.redo())
			if db.broken == nil {
				err = nil
			}
		}
		db.mu.Unlock()
		if err != nil {
			return nil, fmt.Errorf("its file is damaged, and no other member has it: %w", err)
		}
	}
	last, err := f.store.LastIndex()
	if err != nil {
		return nil, err
	}
	last = max(last, f.progress.applied.Load())
	f.membership.mu.Lock()
	f.membership.cluster = f.membership.renewed
	f.membership.dirs = directories{Place: last << 12, Config: 1, // as raft.RecoverCluster numbers it
		Members: map[string]memberDirectory{f.opts.ID: {f.membership.directory, last << 12}}}
	f.membership.mu.Unlock()
	return f.fsm.Snapshot()
}

// Import creates a database on all nodes with the content of an SQLite file, which may be in use. The
// leader must be this node. If the name exists, the error matches os.ErrExist. The database appears when
// it is complete. The file may have any journal mode; the database is in WAL mode. What changes in the file
// during the call may be missing.
func (n *Node) Import(ctx context.Context, name, path string) error {
	if err := n.mayCreate(name); err != nil {
		return err
	}
	staging := filepath.Join(n.opts.Dir, "staging")
	if err := os.MkdirAll(staging, 0o700); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(staging, "import-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "db")
	if err := copyDatabase(path, file); err != nil {
		return fmt.Errorf("replica: importing %s: %w", path, err)
	}
	s := databaseState{Name: name}
	if s.PageSize, s.Position.Sum, err = sumOfFile(file); err != nil {
		return fmt.Errorf("replica: importing %s: %w", path, err)
	}
	if err := n.restoreOne(ctx, file, s); err != nil {
		return fmt.Errorf("replica: importing %s: %w", path, err)
	}
	return nil
}

// copyDatabase copies an SQLite database, with the commits in its WAL, to a file in WAL mode without one.
func copyDatabase(from, to string) error {
	if _, err := os.Stat(from); err != nil {
		return err
	}
	c, err := sqlite3.OpenFlags(vfsURI(from), sqlite3.OPEN_READWRITE|sqlite3.OPEN_URI)
	if err != nil {
		return err
	}
	err = c.Backup("main", vfsURI(to))
	if err = errors.Join(err, c.Close()); err != nil {
		return err
	}
	c, err = sqlite3.OpenFlags(vfsURI(to), sqlite3.OPEN_READWRITE|sqlite3.OPEN_URI)
	if err != nil {
		return err
	}
	err = c.Exec("PRAGMA journal_mode=WAL; BEGIN IMMEDIATE; COMMIT; PRAGMA wal_checkpoint(TRUNCATE)")
	return errors.Join(err, c.Close())
}

// vfsURI returns the URI by which the driver's own VFS opens a file.
func vfsURI(path string) string {
	return (&url.URL{Scheme: "file", OmitHost: true, Path: path}).String() + "?vfs=os"
}

// sumOfFile returns the page size and the checksum of a database file without a WAL.
func sumOfFile(path string) (pageSize uint32, sum uint64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	var head [100]byte
	if _, err := io.ReadFull(f, head[:]); err != nil {
		return 0, 0, fmt.Errorf("it is no SQLite database, or is empty: %w", err)
	}
	pageSize = uint32(head[16])<<8 | uint32(head[17])
	if pageSize == 1 {
		pageSize = 65536
	}
	if string(head[:15]) != "SQLite format 3" || pageSize < 512 || pageSize&(pageSize-1) != 0 {
		return 0, 0, errors.New("it is no SQLite database")
	}
	p := make([]byte, pageSize)
	for pgno := uint32(1); ; pgno++ {
		_, err := f.ReadAt(p, int64(pgno-1)*int64(pageSize))
		if err == io.EOF {
			return pageSize, sum, nil
		}
		if err != nil {
			return 0, 0, err
		}
		sum ^= pageSum(pgno, p)
	}
}

// The addresses of members that have changed while no majority could record that.
