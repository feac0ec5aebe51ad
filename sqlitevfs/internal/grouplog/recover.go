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

// Report is the result of [Recover] or [Open].
type Report struct {
	ID, Generation uint64 // of the log
	Batches        int    // replayed
	Bytes          int64  // their size in the log
	Records        int    // commits in them
	Torn           bool   // the newest batch was incomplete and never acknowledged

	Applied    int // commits written into their WAL
	Present    int // already in their WAL
	Old        int // known to be in their WAL or database, which was checkpointed or synced
	Missing    int // whose WAL is gone
	Foreign    int // whose WAL has another life, which is not a later one of the same WAL
	Superseded int // whose place in the WAL has another commit
	Replaced   int // whose database and WAL were replaced by a copy, see Kept
	Invalid    int // whose frames do not continue the WAL
	Elsewhere  int // of WALs in other directories, see [Options.Local]

	WALs    int   // that were synced
	Written int64 // bytes written into WALs

	// Kept is the name of a copy of the log, which is made if there are Replaced commits.
	Kept string
	// Skipped are commits that could not be restored and never will be: Missing, Foreign,
	// Superseded, Replaced and Invalid ones.
	Skipped []Skipped
	// Unresolved are WALs that may lack commits of the log. While there are any, the log is left
	// unchanged.
	Unresolved []Unresolved

	// Damage describes the unreadable parts of the log, one line each.
	Damage []string

	unknown map[uint32]error // further WALs that may lack commits, by [owner] of their path
	all     error            // why every WAL may lack commits
	owners  func(wal string) []uint32
}

// Skipped are commits of a WAL that were not replayed, with the reason.
type Skipped struct {
	WAL     string // its absolute path
	Commits int
	Why     string
}

// Unresolved is a WAL that may lack commits.
type Unresolved struct {
	WAL     string // its absolute path
	Commits int    // of the log, that may be missing from the WAL; 0 if the log is damaged
	Err     error
}

// Lacks returns the reason why the WAL with this absolute path may lack acknowledged commits, or
// nil.
func (r *Report) Lacks(wal string) error {
	for _, u := range r.Unresolved {
		if u.WAL == wal {
			return u.Err
		}
	}
	if len(r.unknown) > 0 {
		for _, o := range r.owners(wal) {
			if err := r.unknown[o]; err != nil {
				return err
			}
		}
	}
	return r.all
}

// Pending returns the reason why the log must be kept unchanged, or nil.
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

// These are the bytes of a database file that SQLite locks.
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

// recover writes all commits of the log into their WALs and syncs them. An error means that the log
// itself cannot be read. Problems with single WALs are in the report.
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
	for _, name := range slices.Sorted(maps.Keys(r.wals)) {
		r.wals[name].countAbsent(&r.report)
	}
	r.sync()
	r.damaged()
	if r.report.Pending() == nil { // the log has nothing more for any of them
		for name := range r.paths {
			l.unpointOwn(l.absolute(name))
		}
	}
	return r.report, nil
}

func (l *Log) newRecovery(c *contents) *recovery {
	r := &recovery{log: l, contents: c, wals: map[string]*target{}, paths: map[string]bool{}, dirs: map[string][]string{}}
	r.report = Report{ID: l.header.id, Generation: l.header.generation, Batches: len(c.batches), Torn: c.torn,
		unknown: map[uint32]error{}, owners: l.owners}
	for _, b := range c.batches {
		r.report.Bytes += b.size()
	}
	return r
}

// apply writes a record into the WAL with its path. If that WAL has other salts, apply uses the
// WALs in the same directory with the record's salts, which were renamed or copied.
func (r *recovery) apply(rec record) {
	switch {
	case !r.log.serves(rec.path):
		r.report.Elsewhere++
		return
	case len(rec.frames) == 0:
		return // it only notes up to where the WAL was durable
	}
	r.paths[rec.path] = true
	r.report.Records++
	if rec.seq <= r.contents.synced[rec.path] {
		r.report.Old++
		return
	}
	t := r.target(rec.path)
	if t.err == nil && !t.followed(rec) && (!t.has(rec) || t.evidence.of(rec) == restored) {
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

// target returns the WAL of a path, opened if possible.
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
		names, _ = r.log.walNames(dir) // a directory that cannot be listed has no match
		r.dirs[dir] = names
	}
	for _, name := range names {
		if name == rec.path {
			continue
		}
		if t := r.wals[name]; t == nil && !r.log.hasLife(name, rec.header) {
			continue
		}
		if t := r.target(name); t.err == nil && t.has(rec) && t.evidence.of(rec) != restored {
			all = append(all, t)
		}
	}
	return all
}

// hasLife reports whether a WAL has the header h.
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

// sync syncs the WALs, including those into which nothing was written, because their content may be
// only in the page cache.
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
		r.log.unpointOwn(t.path)
	}
}

// damaged records the WALs with commits in damaged batches. They are unresolved or, in a salvage,
// skipped.
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
				r.paths[name] = true
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

// span is the extent of a commit in a WAL.
type span struct{ start, end int64 }

// target is a WAL into which records are replayed.
type target struct {
	path    string
	err     error    // why it cannot be used
	absence *absence // the records, if it is gone
	evidence
	file    disk.File // nil: missing
	content disk.File // the database; nil: missing
	locked  bool      // the database is locked: it is not in use
	dry     bool      // nothing may be written or locked
	lacks   bool      // it is dry, and end counts commits that it lacks
	size    int64
	header  Header
	valid   bool  // it has a header
	known   bool  // a record of this life of the WAL was seen
	records int   // number of such records
	again   bool  // it must be loaded a second time
	end     int64 // end of the last commit
	sum     checksum
	// spans are the newest commits of the WAL that are known from the log, contiguous.
	spans []span
	buf   []byte
}

// openTarget opens a WAL and finds its last commit. If the database is not in use, it
// is locked against SQLite during the recovery.
func (l *Log) openTarget(path string, dry bool) *target {
	t := &target{path: path, dry: dry}
	t.err = t.open(l)
	return t
}

// open opens the database and its WAL for a replay and, unless it is dry, tries to lock the database. A
// file that does not exist stays nil.
func (t *target) open(l *Log) error {
	fsys := l.opts.FS
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
	t.content = lock
	if !t.dry {
		if t.locked, err = lock.TryLock(lockStart, lockSize); err != nil {
			return err
		}
	}
	t.file, err = fsys.Open(t.path, how, 0)
	if err != nil {
		t.file = nil
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	if t.locked { // no connection has it: see Uncache
		t.file.Uncache()
		t.content.Uncache()
	}
	t.evidence = l.examine(lock, t.file)
	return t.load()
}

func (t *target) close() {
	if t.file != nil {
		t.file.Close()
	}
	if t.content != nil {
		t.content.Close()
	}
}
