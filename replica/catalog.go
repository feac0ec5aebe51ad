// SPDX-License-Identifier: MIT

package replica

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/ncruces/go-sqlite3"
)

// catalog is the list of the databases on this node.
type catalog struct {
	node    *Node
	data    string // the directory of their files
	vfsName string
	swept   bool // sweep was called. For the state machine only

	mu      sync.RWMutex
	dbs     map[uint64]*database
	names   map[string]*database
	folders map[string]int      // number of databases in each directory and below it
	emptied map[string]struct{} // directories of databases that were removed
}

var vfsNumber atomic.Uint64

func (cat *catalog) open(n *Node, data string) {
	cat.node, cat.data = n, data
	cat.vfsName = fmt.Sprintf("ringside-replica-%d", vfsNumber.Add(1))
	cat.dbs, cat.names, cat.folders = make(map[uint64]*database), make(map[string]*database), make(map[string]int)
}

// staging returns the path at which the parts of a restored file are collected.
func (cat *catalog) staging(id []byte) string {
	return filepath.Join(cat.node.opts.Dir, "staging", hex.EncodeToString(id))
}

// addPart writes a part of a file. If that fails on a node, or a node lacks parts because it was
// restarted, it fetches the database when it is complete on another one: the node that runs
// Restore has all parts.
func (cat *catalog) addPart(rest []byte) error {
	if len(rest) < 24 {
		return errEntry
	}
	path := cat.staging(rest[:16])
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(rest[24:], int64(binary.LittleEndian.Uint64(rest[16:])))
	return errors.Join(err, f.Close())
}

// joinParts makes a database from the parts of a file, or removes them if there is no name.
func (cat *catalog) joinParts(at Position, id uint64, rest []byte) error {
	if len(rest) < 28 {
		return errEntry
	}
	path, name := cat.staging(rest[:16]), string(rest[28:])
	at.Sum = binary.LittleEndian.Uint64(rest[16:])
	defer os.Remove(path) // it still exists if the database was made before a restart
	if name == "" {
		return nil
	}
	return cat.define(at, id, name, binary.LittleEndian.Uint32(rest[24:]), func(db *database) error {
		err := cat.node.opts.disk.syncFile(path)
		if err == nil {
			err = cat.node.opts.disk.rename(path, db.path)
		}
		return err
	})
}

func (cat *catalog) newDatabase(id uint64, name string, pageSize uint32, pos Position) *database {
	db := &database{node: cat.node, id: id, name: name, path: filepath.Join(cat.data, filepath.FromSlash(name)), pos: pos, pageSize: pageSize}
	db.uri = (&url.URL{Scheme: "file", OmitHost: true, Path: filepath.ToSlash(db.path)}).String()
	return db
}

// sync makes durable the database files that changed since the last call, and the removal
// of deleted ones.
func (cat *catalog) sync() error {
	if bug := cat.node.opts.bug; bug != nil && bug.syncsNothing() {
		return nil
	}
	for _, db := range cat.all() {
		if !db.dirty.Swap(false) {
			continue
		}
		for _, name := range []string{db.path + "-wal", db.path} {
			if err := cat.node.opts.disk.syncFile(name); err != nil && !errors.Is(err, os.ErrNotExist) {
				db.dirty.Store(true)
				return err
			}
		}
	}
	cat.mu.Lock()
	dirs := cat.emptied
	cat.emptied = nil
	cat.mu.Unlock()
	for dir := range dirs {
		if err := cat.node.opts.disk.syncFile(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			cat.mu.Lock()
			for dir := range dirs {
				cat.empty(dir)
			}
			cat.mu.Unlock()
			return err
		}
	}
	return nil
}

// empty notes that a database in a directory was removed. mu is locked.
func (cat *catalog) empty(dir string) {
	if cat.emptied == nil {
		cat.emptied = make(map[string]struct{})
	}
	cat.emptied[dir] = struct{}{}
}

// flush writes the deferred transactions of all databases into their files.
func (cat *catalog) flush() {
	for _, db := range cat.all() {
		db.mu.Lock()
		_ = db.flush() // it is repaired
		db.mu.Unlock()
	}
}

func (cat *catalog) all() []*database {
	cat.mu.RLock()
	defer cat.mu.RUnlock()
	all := make([]*database, 0, len(cat.dbs))
	for _, db := range cat.dbs {
		all = append(all, db)
	}
	return all
}

// isDeleted reports whether a database was deleted by an entry that this node has applied.
func (cat *catalog) isDeleted(id uint64) bool {
	created := id >> 12
	return cat.node.progress.applied.Load() >= created && cat.byID(id) == nil
}

func (cat *catalog) byID(id uint64) *database {
	cat.mu.RLock()
	defer cat.mu.RUnlock()
	return cat.dbs[id]
}

func (cat *catalog) named(name string) (*database, error) {
	cat.mu.RLock()
	defer cat.mu.RUnlock()
	if db := cat.names[name]; db != nil {
		return db, nil
	}
	return nil, fmt.Errorf("replica: no database %q: %w", name, os.ErrNotExist)
}

// atPath returns the database of a file.
func (cat *catalog) atPath(path string) *database {
	rel, err := filepath.Rel(cat.data, path)
	if err != nil {
		return nil
	}
	db, _ := cat.named(filepath.ToSlash(rel))
	return db
}

// CreateOptions configure a new database.
type CreateOptions struct {
	PageSize   int  // in bytes; 0 means 4096
	AutoVacuum bool // PRAGMA auto_vacuum=INCREMENTAL
}

// The lengths of names in bytes. File systems allow 255 bytes for a part of a path, and SQLite 1024 for a
// path: names need room for the longest of reservedEndings.
const (
	maxName = 500
	maxPart = 255 - len("-journal")
	maxData = 1024 - len("-journal") - 1 - len("/") - maxName // the directory of the databases
)

// reservedEndings are those of the files beside a database.
var reservedEndings = []string{"-wal", "-shm", "-journal", ".new"}

// checkName returns an error for a name that some file system, or the log, could not have: a database whose
// file cannot be made on any node would be there forever.
func checkName(name string) error {
	switch {
	case !filepath.IsLocal(filepath.FromSlash(name)), name == ".", name != filepath.ToSlash(filepath.Clean(name)), len(name) > maxName:
		return fmt.Errorf("replica: %q is not a name for a database: use a relative path without dots, of at most %d bytes", name, maxName)
	case isSeal(name):
		return fmt.Errorf("replica: %q is not a name for a database: names that begin with %s are reserved", name, sealFile)
	case !utf8.ValidString(name), strings.ContainsAny(name, "?#%\x00"):
		return fmt.Errorf("replica: %q is not a name for a database: one of its characters is reserved, or is not valid UTF-8", name)
	}
	for part := range strings.SplitSeq(name, "/") {
		if len(part) > maxPart {
			return fmt.Errorf("replica: %q is not a name for a database: %q has %d bytes, the limit is %d", name, part, len(part), maxPart)
		}
		for _, ending := range reservedEndings {
			if strings.HasSuffix(part, ending) {
				return fmt.Errorf("replica: %q is not a name for a database: the ending %s of %q is reserved", name, ending, part)
			}
		}
	}
	return nil
}

// folders yields the directories of a name: those of "a/b/c" are "a/b" and "a".
func folders(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := strings.LastIndexByte(name, '/'); i > 0; i = strings.LastIndexByte(name[:i], '/') {
			if !yield(name[:i]) {
				return
			}
		}
	}
}

// taken returns an error if a name exists, is a directory of another name, or has another name as a
// directory. mu is locked.
func (cat *catalog) taken(name string) error {
	if cat.names[name] != nil {
		return fmt.Errorf("replica: the database %q already exists: %w", name, os.ErrExist)
	}
	if cat.folders[name] > 0 {
		return fmt.Errorf("replica: %q is a directory of databases: %w", name, os.ErrExist)
	}
	for folder := range folders(name) {
		if cat.names[folder] != nil {
			return fmt.Errorf("replica: %q is a database and cannot be the directory of %q: %w", folder, name, os.ErrExist)
		}
	}
	return nil
}

// countFolders adds by to the numbers of databases in the directories of a name. mu is locked.
func (cat *catalog) countFolders(name string, by int) {
	for folder := range folders(name) {
		if cat.folders[folder] += by; cat.folders[folder] == 0 {
			delete(cat.folders, folder)
		}
	}
}

// emptyDatabases has the pages of emptyDatabase by the options, whose page size is not 0.
var emptyDatabases sync.Map

// emptyDatabase returns a database without tables that is in WAL mode. The pages are read-only:
// all databases with the same options begin with them.
func (cat *catalog) emptyDatabase(o CreateOptions) (pageSize uint32, pages []byte, err error) {
	if o.PageSize == 0 {
		o.PageSize = 4096
	}
	if made, ok := emptyDatabases.Load(o); ok {
		return uint32(o.PageSize), made.([]byte), nil
	}
	// The system may have no directory for temporary files.
	staging := filepath.Join(cat.node.opts.Dir, "staging")
	if err := os.MkdirAll(staging, 0o700); err != nil {
		return 0, nil, err
	}
	dir, err := os.MkdirTemp(staging, "empty-")
	if err != nil {
		return 0, nil, err
	}
	defer os.RemoveAll(dir)
	vacuum := "NONE"
	if o.AutoVacuum {
		vacuum = "INCREMENTAL"
	}
	path := filepath.Join(dir, "db")
	c, err := sqlite3.Open((&url.URL{Scheme: "file", OmitHost: true, Path: path}).String() + "?vfs=os")
	if err != nil {
		return 0, nil, err
	}
	err = c.Exec(fmt.Sprintf("PRAGMA page_size=%d; PRAGMA auto_vacuum=%s; PRAGMA journal_mode=WAL; CREATE TABLE t(x); DROP TABLE t; VACUUM", o.PageSize, vacuum))
	if err = errors.Join(err, c.Close()); err != nil {
		return 0, nil, err
	}
	if pages, err = os.ReadFile(path); err != nil {
		return 0, nil, err
	}
	if len(pages) < o.PageSize || len(pages)%o.PageSize != 0 || binary.BigEndian.Uint16(pages[16:]) != uint16(o.PageSize&0xffff|o.PageSize>>16) {
		return 0, nil, fmt.Errorf("replica: page size %d is not a power of two between 512 and 65536", o.PageSize)
	}
	emptyDatabases.Store(o, pages)
	return uint32(o.PageSize), pages, nil
}

// created is a create operation that raft's log brings.
func (cat *catalog) created(at Position, id uint64, name string, pageSize uint32, pages []byte) error {
	for i := 0; i < len(pages); i += int(pageSize) {
		at.Sum ^= pageSum(uint32(i/int(pageSize))+1, pages[i:i+int(pageSize)])
	}
	return cat.define(at, id, name, pageSize, func(db *database) error { return cat.node.opts.disk.writeFile(db.path, pages) })
}

// define adds a database. make creates its file.
func (cat *catalog) define(at Position, id uint64, name string, pageSize uint32, make func(*database) error) error {
	if err := checkName(name); err != nil {
		return err
	}
	cat.mu.RLock()
	err := cat.taken(name)
	cat.mu.RUnlock()
	if err != nil {
		return err
	}
	db := cat.newDatabase(id, name, pageSize, at)
	// An existing file is from before a crash: load finds its position.
	if err := cat.clearWay(db); err != nil {
		cat.node.log.Warn("replica: what is in the place of a database cannot be removed", "database", name, "error", err)
	}
	_, err = os.Stat(db.path)
	if errors.Is(err, os.ErrNotExist) || err == nil && cat.node.progress.recovered.Load() {
		if err = cat.node.opts.disk.mkdirAll(filepath.Dir(db.path)); err == nil {
			err = removeBeside(db.path)
		}
		if err == nil {
			err = make(db)
		}
	}
	cat.mu.Lock()
	cat.dbs[id], cat.names[name] = db, db
	cat.countFolders(name, 1)
	cat.mu.Unlock()
	cat.node.changes.named(name)
	db.dirty.Store(true)
	if err != nil {
		db.mu.Lock()
		defer db.mu.Unlock()
		db.fail(err)
	}
	return nil
}

// clearWay removes a directory that has the name of a database, and files that have the names of its
// directories. They are left from databases that were deleted, or are those of databases that raft's log
// creates again after this one.
func (cat *catalog) clearWay(db *database) error {
	for folder := range folders(db.name) {
		path := filepath.Join(cat.data, filepath.FromSlash(folder))
		if info, err := os.Lstat(path); err == nil && !info.IsDir() {
			if err := errors.Join(os.Remove(path), removeBeside(path)); err != nil {
				return err
			}
		}
	}
	if info, err := os.Lstat(db.path); err == nil && info.IsDir() {
		return os.RemoveAll(db.path)
	}
	return nil
}

func (cat *catalog) deleted(id uint64) error {
	cat.mu.Lock()
	db := cat.dbs[id]
	if db != nil {
		delete(cat.dbs, id)
		delete(cat.names, db.name)
		cat.countFolders(db.name, -1)
	}
	cat.mu.Unlock()
	if db == nil {
		return errDeleted
	}
	cat.node.changes.named(db.name)
	return db.remove()
}

func (db *database) remove() error {
	db.mu.Lock()
	db.gone = true
	db.epoch.Add(1)
	err := db.close()
	db.mu.Unlock()
	db.node.openFiles.remove(db)
	db.node.sessions.evict(db)
	db.node.catalog.mu.Lock()
	db.node.catalog.empty(filepath.Dir(db.path))
	db.node.catalog.mu.Unlock()
	if rerr := os.Remove(db.path); rerr != nil && !errors.Is(rerr, os.ErrNotExist) {
		err = errors.Join(err, rerr)
	}
	return errors.Join(err, removeBeside(db.path))
}

// settle is called when all entries that were committed before the node started have been
// applied.
func (cat *catalog) settle() {
	if cat.node.progress.recovered.Swap(true) {
		return
	}
	for _, db := range cat.all() {
		db.settle()
	}
}

// Position returns the state of a database on this node. After a commit on the leader it
// returns the state that the commit made, or a later one.
func (n *Node) Position(name string) (Position, error) {
	db, err := n.catalog.named(name)
	if err != nil {
		return Position{}, err
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.pos, nil
}

// List returns the names of the databases, sorted, as this node knows them.
func (n *Node) List() []string {
	n.catalog.mu.RLock()
	defer n.catalog.mu.RUnlock()
	names := make([]string, 0, len(n.catalog.names))
	for name := range n.catalog.names {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// mayCreate returns an error if this node cannot create a database of that name.
func (n *Node) mayCreate(name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	if err := n.role.writable(); err != nil {
		return err
	}
	n.catalog.mu.RLock()
	defer n.catalog.mu.RUnlock()
	return n.catalog.taken(name)
}

// Create creates an empty database on all nodes. The leader must be this node. A name is a
// relative path with slashes. If the database exists, the error matches
// os.ErrExist.
func (n *Node) Create(ctx context.Context, name string, o CreateOptions) error {
	if err := n.mayCreate(name); err != nil {
		return err
	}
	size, pages, err := n.catalog.emptyDatabase(o)
	if err != nil {
		return err
	}
	rest := binary.LittleEndian.AppendUint32(nil, size)
	rest = binary.LittleEndian.AppendUint32(rest, uint32(len(name)))
	return n.proposer.commit(ctx, opCreate, append(append(rest, name...), pages...))
}

// Delete deletes a database on all nodes. The leader must be this node. Connections that
// are open get errors.
func (n *Node) Delete(ctx context.Context, name string) error {
	db, err := n.catalog.named(name)
	if err == nil {
		err = n.role.writable()
	}
	if err != nil {
		return err
	}
	return n.proposer.commit(ctx, opDelete, binary.LittleEndian.AppendUint64(nil, db.id))
}
