// SPDX-License-Identifier: MIT

package grouplog

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"

	"github.com/ringside-io/ringside/sqlitevfs/internal/disk"
)

// Report says what [Recover] or [Open] found in the log.
type Report struct {
	ID, Generation uint64 // of the log
	Batches        int    // that were replayed
	Bytes          int64  // that they take in the log
	Records        int    // commits in them
	Torn           bool   // the newest batch was not whole: it was never acknowledged

	Applied    int // commits that were written into their WAL
	Present    int // that their WAL had already
	Old        int // that are known to be in their WAL or database: checkpointed, or synced
	Missing    int // whose WAL is gone
	Foreign    int // whose WAL has another life, which is no later one of the same
	Superseded int // whose place in the WAL holds another commit
	Invalid    int // whose frames do not follow what the WAL holds
	Elsewhere  int // of WALs in other directories, see [Options.Local]

	WALs    int   // that were synced
	Written int64 // bytes written into WALs

	// Skipped are commits of the log that could not be brought back, and will
	// not be: Missing, Foreign, Superseded and Invalid ones.
	Skipped []Skipped
	// Unresolved are WALs that may lack commits which the log holds or held. As
	// long as there are any, the log is left as it is.
	Unresolved []Unresolved

	// Damage says what of the log cannot be read, a line for each place.
	Damage []string

	unknown map[uint32]error // more of these, by [owner] of their path
	all     error            // why every WAL may lack commits
	owner   func(wal string) uint32
}

// Skipped are commits of a WAL that were not replayed, for one reason.
type Skipped struct {
	WAL     string // its absolute path
	Commits int
	Why     string
}

// Unresolved is a WAL that may lack commits.
type Unresolved struct {
	WAL     string // its absolute path
	Commits int    // of the log, which may be lacking; 0 where the log is damaged
	Err     error
}

// Lacks returns why a WAL, given by its absolute path, may lack commits that were
// acknowledged, nil if it does not.
func (r *Report) Lacks(wal string) error {
	for _, u := range r.Unresolved {
		if u.WAL == wal {
			return u.Err
		}
	}
	if err := r.unknown[r.ownerOf(wal)]; err != nil {
		return err
	}
	return r.all
}

func (r *Report) ownerOf(wal string) uint32 {
	if r.owner == nil {
		return 0
	}
	return r.owner(wal)
}

// Pending returns why the log has to be kept as it is, nil if it has not.
func (r *Report) Pending() error {
	switch {
	case r.all != nil:
		return r.all
	case len(r.Unresolved) > 0:
		u := r.Unresolved[0]
		return fmt.Errorf("%w: %s: %w", ErrPending, u.WAL, u.Err)
	}
	for _, err := range r.unknown {
		return fmt.Errorf("%w: %w", ErrPending, err)
	}
	return nil
}

// The bytes of a database file that SQLite locks.
const (
	lockStart = 0x40000000
	lockSize  = 512
)

// recovery replays records into WALs.
type recovery struct {
	log      *Log
	report   Report
	contents *contents
	wals     map[string]*target // by path, see relative
	paths    map[string]bool    // of all records
	dry      bool               // nothing is written or locked
	dirs     map[string][]string
}

// recover writes all commits that the log holds into their WALs and syncs these. An
// error means that the log itself cannot be read; problems of single WALs are in the
// report.
func (l *Log) recover() (Report, error) {
	if l.header.clean {
		return Report{}, nil
	}
	c, err := l.scan()
	if err != nil {
		return Report{}, err
	}
	r := l.newRecovery(c)
	defer r.close()
	if err := l.replay(c, r.apply); err != nil {
		return r.report, err
	}
	r.sync()
	r.damaged()
	return r.report, nil
}

func (l *Log) newRecovery(c *contents) *recovery {
	r := &recovery{log: l, contents: c, wals: map[string]*target{}, paths: map[string]bool{}, dirs: map[string][]string{}}
	r.report = Report{ID: l.header.id, Generation: l.header.generation, Batches: len(c.batches), Torn: c.torn,
		unknown: map[uint32]error{}, owner: func(wal string) uint32 { return owner(l.relative(wal)) }}
	for _, b := range c.batches {
		r.report.Bytes += b.size()
	}
	return r
}

// apply writes a record into its WAL: the one of its path or, if that has other salts,
// those in the same directory that have its salts because they were renamed or
// copied.
func (r *recovery) apply(rec record) {
	switch {
	case !r.log.serves(rec.path):
		r.report.Elsewhere++
		return
	case len(rec.frames) == 0:
		return // says only up to where the WAL was durable
	}
	r.paths[rec.path] = true
	r.report.Records++
	if rec.seq <= r.contents.synced[rec.path] {
		r.report.Old++
		return
	}
	t := r.target(rec.path)
	if t.err == nil && !t.has(rec) && !t.followed(rec) {
		if others := r.matching(rec); len(others) > 0 {
			for _, t := range others {
				r.applyTo(t, rec)
			}
			return
		}
	}
	r.applyTo(t, rec)
}

func (r *recovery) applyTo(t *target, rec record) {
	if t.err == nil {
		if err := t.apply(rec, &r.report); err != nil {
			t.err = err
		}
	}
	if t.err != nil {
		r.unresolved(t, rec)
	}
}

// unresolved records that a commit could not be written into its WAL for now.
func (r *recovery) unresolved(t *target, rec record) {
	for i := range r.report.Unresolved {
		if u := &r.report.Unresolved[i]; u.WAL == t.path {
			u.Commits++
			return
		}
	}
	r.report.Unresolved = append(r.report.Unresolved, Unresolved{WAL: t.path, Commits: 1, Err: t.err})
}

func (r *Report) skip(wal, why string) {
	for i := range r.Skipped {
		if s := &r.Skipped[i]; s.WAL == wal && s.Why == why {
			s.Commits++
			return
		}
	}
	r.Skipped = append(r.Skipped, Skipped{WAL: wal, Commits: 1, Why: why})
}

// target returns the WAL of a path, open if it can be.
func (r *recovery) target(name string) *target {
	t := r.wals[name]
	if t == nil {
		t = r.log.openTarget(r.log.absolute(name), r.dry)
		r.wals[name] = t
	}
	return t
}

// matching returns the other WALs in a record's directory that have its salts.
func (r *recovery) matching(rec record) (all []*target) {
	dir := path.Dir(filepath.ToSlash(rec.path))
	names, ok := r.dirs[dir]
	if !ok {
		names, _ = r.log.walNames(dir) // what cannot be listed has no match
		r.dirs[dir] = names
	}
	for _, name := range names {
		if name == rec.path {
			continue
		}
		if t := r.wals[name]; t == nil && !r.log.hasLife(name, rec.header) {
			continue
		}
		if t := r.target(name); t.err == nil && t.has(rec) {
			all = append(all, t)
		}
	}
	return all
}

// hasLife reports whether a WAL begins with the header of a life.
func (l *Log) hasLife(name string, h Header) bool {
	f, err := l.opts.FS.Open(l.absolute(name), disk.ReadOnly, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	p := make([]byte, walHeaderSize)
	if readFull(f, p, 0) != nil {
		return false
	}
	found, err := ParseHeader(p)
	return err == nil && found.same(h)
}

// sync syncs the WALs, also those into which nothing was written: what they hold may
// be in the page cache only.
func (r *recovery) sync() {
	dirs := map[string]error{}
	for _, name := range slices.Sorted(maps.Keys(r.wals)) {
		t := r.wals[name]
		if t.file == nil || !t.known || t.err != nil {
			continue
		}
		if t.err = t.file.Sync(); t.err == nil {
			dir := filepath.Dir(t.path)
			if _, ok := dirs[dir]; !ok {
				dirs[dir] = r.log.opts.FS.SyncDir(dir)
			}
			t.err = dirs[dir]
		}
		if t.err != nil {
			r.report.Unresolved = append(r.report.Unresolved, Unresolved{WAL: t.path, Commits: t.records, Err: t.err})
			continue
		}
		r.report.WALs++
		if dir, err := Elsewhere(t.path, r.log.opts); err == nil && dir == r.log.dir {
			r.log.unpoint(t.path)
		}
	}
}

// damaged records which WALs had commits in damaged batches: they are unresolved or,
// in a salvage, skipped.
func (r *recovery) damaged() {
	if len(r.contents.damage) == 0 {
		return
	}
	names := maps.Clone(r.paths)
	for dir := range dirsOf(r.paths) {
		wals, _ := r.log.walNames(dir)
		for _, name := range wals {
			names[name] = true
		}
	}
	for _, d := range r.contents.damage {
		known, unknown := whose(d, names)
		why := fmt.Sprintf("batch %d is not whole", d.first)
		if d.last > d.first {
			why = fmt.Sprintf("batches %d to %d are missing", d.first, d.last)
		}
		err := &CorruptError{r.log.path, d.off, why}
		r.report.Damage = append(r.report.Damage, fmt.Sprintf("at %d: %s", d.off, why))
		if r.log.opts.Salvage {
			for _, name := range known {
				if !d.allValid(owner(name)) {
					r.report.skip(r.log.absolute(name), "the log is damaged")
				}
			}
			continue
		}
		if !d.known {
			r.report.all = cmp.Or[error](r.report.all, err)
			continue
		}
		for _, name := range known {
			if wal := r.log.absolute(name); !d.allValid(owner(name)) && r.report.Lacks(wal) == nil {
				r.report.Unresolved = append(r.report.Unresolved, Unresolved{WAL: wal, Err: err})
			}
		}
		for _, o := range unknown {
			r.report.unknown[o] = err
		}
	}
}

func dirsOf(paths map[string]bool) map[string]bool {
	dirs := map[string]bool{".": true}
	for name := range paths {
		dirs[path.Dir(filepath.ToSlash(name))] = true
	}
	return dirs
}

func (r *recovery) close() {
	for _, t := range r.wals {
		t.close()
	}
}

// span is where a commit lies in a WAL.
type span struct{ start, end int64 }

// target is a WAL that records are replayed into.
type target struct {
	path    string
	err     error     // why it cannot be
	file    disk.File // nil: missing
	db      disk.File // the locked database, nil if it is in use
	dry     bool      // nothing may be written or locked
	lacks   bool      // it is dry, and end is behind commits that it lacks
	size    int64
	header  Header
	valid   bool  // it has a header
	known   bool  // a record of this life of the WAL was seen
	records int   // how many
	again   bool  // it was loaded a second time
	end     int64 // behind the last commit
	sum     checksum
	// spans are the newest commits of the WAL that are known from the log, one
	// behind the other.
	spans []span
	buf   []byte
}

// openTarget opens a WAL and finds its last commit. If the database is not in use, it
// is locked against SQLite during the recovery.
func (l *Log) openTarget(path string, dry bool) *target {
	t := &target{path: path, dry: dry}
	t.err = t.open(l.opts.FS)
	return t
}

func (t *target) open(fsys disk.FS) error {
	db, ok := database(t.path)
	if !ok {
		return nil
	}
	how := disk.Flag(0)
	if t.dry {
		how = disk.ReadOnly
	}
	lock, err := fsys.Open(db, how, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	if t.dry {
		lock.Close()
	} else if ok, err := lock.TryLock(lockStart, lockSize); ok {
		t.db = lock
	} else if lock.Close(); err != nil {
		return err
	}
	t.file, err = fsys.Open(t.path, how, 0)
	if errors.Is(err, fs.ErrNotExist) {
		t.file = nil
		return nil
	} else if err != nil {
		t.file = nil
		return err
	}
	return t.load()
}

func (t *target) close() {
	if t.file != nil {
		t.file.Close()
	}
	if t.db != nil {
		t.db.Close()
	}
}
