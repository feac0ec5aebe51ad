// SPDX-License-Identifier: MIT

package blockdisk

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/util/vfsutil"
	"github.com/ncruces/go-sqlite3/vfs"
	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/appendlog"
	"github.com/ringside-io/ringside/sqlitevfs"
	"github.com/ringside-io/ringside/ufile"
)

// work is a workload of one process, with everything that its judge needs. Fields are exported for
// JSON.
type work struct {
	Kind string // "sqlite", "appendlog", "pebble", "file" or "failure"
	Dir  string
	Seed uint64

	// For databases. There is a connection for each of Levels, all at the same time.
	VFS      string
	Params   string // of the URI
	Mode     string // journal_mode
	Names    []string
	Levels   []string // synchronous
	Commits  int      // of each connection
	Exists   bool     // another process has made the tables
	Attach   bool     // Names are pairs, and each transaction changes both
	Large    bool     // some transactions have many pages
	Wakes    bool     // each transaction has a connection of its own
	Changes  bool     // see work.changes
	PageSize int
	Omit     string // a seeded bug, what is not synced: "journal", "wal" or "db"

	// Fail is a name and the number of its commit, which contains marker: a write of it fails. The
	// program then opens the database again and makes Commits more; with Dies another process does.
	// With Within the program is killed while that write fails. With Checkpoint the write to the WAL succeeds, and that
	// of the database's page fails. With Passive the commits until then are at NORMAL, and checkpoints sync the WAL. With
	// Journal the write of that page succeeds, and its write to the rollback journal of a later commit fails.
	Fail       string
	Dies       bool
	Within     bool
	Checkpoint bool
	Passive    bool
	Journal    bool

	Ahead int // of the durable log

	// Sync is how files are synced. "" is Sync of ufile.File; the others are "syncfs",
	// "syncfs+fdatasync", entrySync and "none".
	Sync string
}

// entrySync is fdatasync of the file without a sync of its directory.
const entrySync = "fdatasync"

func (w work) path(name string) string { return filepath.Join(w.Dir, name) }

// run does the work. acked is called for each acknowledgement and may be called concurrently.
func (w work) run(acked func(name string, n int)) error {
	switch w.Kind {
	case "appendlog":
		return w.runLog(acked)
	case "pebble":
		return w.runPebble(acked)
	case "file":
		return w.runFiles(acked)
	case "failure":
		return w.runFailure(acked)
	}
	return w.runSQLite(acked)
}

// judge returns an error if the files are wrong after a power cut.
func (w work) judge(q question) error {
	switch w.Kind {
	case "appendlog":
		return w.judgeLog(q)
	case "pebble":
		return w.judgePebble(q)
	case "file":
		return w.judgeFiles(q)
	}
	return w.judgeSQLite(q)
}

// Functions for databases.

func (w work) open(name, vfs string) (*sqlite3.Conn, error) {
	c, err := sqlite3.Open("file:" + w.path(name) + "?vfs=" + vfs + w.Params)
	if err != nil {
		return nil, err
	}
	return c, c.Exec("PRAGMA busy_timeout=60000")
}

func (w work) runSQLite(acked func(name string, n int)) error {
	vfsName := w.VFS
	if w.Omit != "" {
		vfs.Register("seeded", &seededVFS{vfs.Find("os"), w.Omit})
		if err := sqlitevfs.Register("seeded-ours", sqlitevfs.Options{Base: "seeded"}); err != nil {
			return err
		}
		vfsName = "seeded-ours"
	}
	if !w.Exists {
		for _, name := range w.Names {
			if err := w.setup(name, vfsName); err != nil {
				return err
			}
			acked(name, 0)
		}
	}
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		failed error
	)
	step := 1
	if w.Attach {
		step = 2
	}
	for i := 0; i < len(w.Names); i += step {
		for j, level := range w.Levels {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(w.Seed, uint64(i)<<8|uint64(j)))
				if err := w.lives(w.Names[i:i+step], vfsName, level, rng, acked); err != nil {
					mu.Lock()
					defer mu.Unlock()
					failed = errors.Join(failed, fmt.Errorf("%s at %s: %w", w.Names[i], level, err))
				}
			})
		}
	}
	wg.Wait()
	return failed
}

// setup makes the tables, which is commit 0.
func (w work) setup(name, vfsName string) (err error) {
	c, err := w.open(name, vfsName)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	return c.Exec(fmt.Sprintf(`PRAGMA page_size=%d; PRAGMA journal_mode=%s; PRAGMA synchronous=FULL;
		BEGIN;
		CREATE TABLE a(id INTEGER PRIMARY KEY, x TEXT, v BLOB);
		CREATE INDEX ax ON a(x);
		CREATE TABLE b(id INTEGER PRIMARY KEY, v BLOB);
		CREATE TABLE n(n INTEGER);
		INSERT INTO n VALUES(0);
		COMMIT`, cmp.Or(w.PageSize, 4096), w.Mode))
}

// lives is connection, and again after the failure that w asks for.
func (w work) lives(names []string, vfsName, level string, rng *rand.Rand, acked func(name string, n int)) error {
	if w.Changes {
		for range w.Commits {
			if err := w.changes(names[0], vfsName, level, rng, acked); err != nil {
				return err
			}
		}
		return nil
	}
	if w.Wakes {
		commits := w.Commits
		for w.Commits = 1; commits > 0; commits-- {
			if err := w.connection(names, vfsName, level, rng, acked); err != nil {
				return err
			}
		}
		return nil
	}
	err := w.connection(names, vfsName, level, rng, acked)
	if w.Dies && errors.Is(err, sqlite3.IOERR) {
		os.Exit(exitFailed)
	}
	// The write may have had blocks of several databases. A checkpoint may fail when the database is closed.
	if w.Fail == "" || !errors.Is(err, sqlite3.IOERR) && (err != nil || !w.Checkpoint) {
		return err
	}
	if w.Dies {
		os.Exit(exitFailed)
	}
	acked(failed, 1)
	w.Fail = ""
	return w.connection(names, vfsName, level, rng, acked)
}

// changes makes a commit with a rollback journal by the default VFS, which does not make the removal durable, and changes
// the mode to w.Mode. It syncs the file system while the database has the journal. Then another connection, which is
// alone, commits at level.
func (w work) changes(name, vfsName, level string, rng *rand.Rand, acked func(name string, n int)) error {
	const removes = "PRAGMA journal_mode=DELETE; PRAGMA cache_size=5"
	if _, err := w.commits(name, "os", removes, "PRAGMA journal_mode="+w.Mode, rng, 1, w.syncFS); err != nil {
		return err
	}
	alone := "PRAGMA locking_mode=EXCLUSIVE; PRAGMA wal_autocheckpoint=0; PRAGMA synchronous=" + level
	_, err := w.commits(name, vfsName, alone, "", rng, 3, func(n int) error { acked(name, n-1); return nil })
	return err
}

// commits makes commits by a connection of their own, between other statements. within is called in each transaction.
func (w work) commits(name, vfsName, before, after string, rng *rand.Rand, commits int, within func(n int) error) (n int, err error) {
	c, err := w.open(name, vfsName)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := c.Exec(before); err != nil {
		return 0, err
	}
	for range commits {
		if n, err = number(c, "SELECT n FROM n"); err != nil {
			return n, err
		}
		n++
		if err := c.Exec("BEGIN;" + w.transaction("main", n, rng) + "UPDATE a SET x=hex(randomblob(8))"); err != nil {
			return n, err
		}
		if err := within(n); err != nil {
			return n, err
		}
		if err := c.Exec("COMMIT"); err != nil {
			return n, err
		}
	}
	return n, c.Exec(after)
}

func (w work) syncFS(int) error {
	dir, err := os.Open(w.Dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	return unix.Syncfs(int(dir.Fd()))
}

// connection makes its commits. Commits of a database are numbered in the order of their
// transactions, across connections. So an acknowledgement of one commit covers those before it.
func (w work) connection(names []string, vfsName, level string, rng *rand.Rand, acked func(name string, n int)) (err error) {
	c, err := w.open(names[0], vfsName)
	if err != nil {
		return err
	}
	defer func() {
		if err == nil || !w.Dies { // a close would write the WAL into the database
			err = errors.Join(err, c.Close())
		}
	}()
	passive := w.Passive && w.Fail != ""
	if passive {
		level = "NORMAL"
	}
	schemas := []string{"main", "other"}[:len(names)]
	if len(names) == 2 {
		if err := c.Exec("ATTACH 'file:" + w.path(names[1]) + "?vfs=" + vfsName + w.Params + "' AS other"); err != nil {
			return err
		}
	}
	for _, schema := range schemas {
		if err := c.Exec(fmt.Sprintf("PRAGMA %[1]s.journal_mode=%[2]s; PRAGMA %[1]s.synchronous=%[3]s; PRAGMA %[1]s.cache_size=%[4]d",
			schema, w.Mode, level, 5+rng.IntN(30))); err != nil {
			return err
		}
	}
	if err := c.Exec(fmt.Sprintf("PRAGMA wal_autocheckpoint=%d", []int{8, 30, 1000}[rng.IntN(3)])); err != nil {
		return err
	}
	for range w.Commits {
		if err := c.Exec("BEGIN IMMEDIATE"); err != nil {
			return err
		}
		n, err := number(c, "SELECT n FROM main.n")
		if err != nil {
			return err
		}
		n++
		for _, schema := range schemas {
			sql := w.transaction(schema, n, rng)
			if w.Fail == fmt.Sprint(names[0], " ", n) {
				sql += fmt.Sprintf("UPDATE %s.b SET v=zeroblob(4000)||CAST('%s' AS BLOB) WHERE id=%d;", schema, marker, n)
			}
			if err := c.Exec(sql); err != nil {
				return err
			}
		}
		if w.Fail == "" && rng.IntN(4) == 0 { // rolled back: pages may have been written already
			if err := c.Exec("ROLLBACK"); err != nil {
				return err
			}
			continue
		}
		if err := c.Exec("COMMIT"); err != nil {
			return err
		}
		if level == "FULL" {
			for _, name := range names {
				acked(name, n)
			}
		}
		if passive {
			if err := c.Exec("PRAGMA wal_checkpoint"); err != nil {
				return err
			}
		}
	}
	return nil
}

// transaction returns the statements of commit n.
func (w work) transaction(schema string, n int, rng *rand.Rand) string {
	size := 100 + rng.IntN(1500)
	if w.Large && rng.IntN(3) == 0 {
		size = 40_000 + rng.IntN(60_000)
	}
	return fmt.Sprintf(`
		INSERT INTO %[1]s.a VALUES(%[2]d, hex(randomblob(8)), randomblob(300));
		INSERT INTO %[1]s.b VALUES(%[2]d, randomblob(%[3]d));
		UPDATE %[1]s.a SET v=randomblob(400), x=hex(randomblob(8)) WHERE id=%[2]d/2;
		DELETE FROM %[1]s.b WHERE id=%[2]d-5;
		UPDATE %[1]s.n SET n=%[2]d;`, schema, n, size)
}

func number(c *sqlite3.Conn, sql string) (int, error) {
	s, _, err := c.Prepare(sql)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	n := 0
	if s.Step() {
		n = s.ColumnInt(0)
	}
	return n, s.Err()
}

// usesLog reports whether commits may be in a log, which stock SQLite does not read.
func (w work) usesLog() bool { return w.VFS == sqlitevfs.NameLog && w.Mode == "WAL" }

func (w work) judgeSQLite(q question) error {
	if q.Stock != "" {
		s := q
		if w.usesLog() {
			s.Acked = nil // stock SQLite may miss the newest commits
		}
		if err := w.judgeAll(s, q.Stock); err != nil {
			return fmt.Errorf("stock SQLite (%s) first: %w", q.Stock, err)
		}
		if w.usesLog() {
			q.Acked = nil // which stock SQLite has overwritten when it closed the database
		}
	}
	if err := w.judgeAll(q, cmp.Or(w.VFS, sqlitevfs.Name)); err != nil {
		return fmt.Errorf("this package (after %q): %w", q.Stock, err)
	}
	return nil
}

func (w work) judgeAll(q question, how string) error {
	last := make([]int, len(w.Names))
	for i, name := range w.Names {
		acked, ok := q.Acked[name]
		var err error
		if last[i], err = w.judgeOne(name, how, acked, ok); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		// A commit to several databases is atomic only in the rollback modes.
		if w.Attach && w.Mode != "WAL" && i%2 == 1 && last[i] != last[i-1] {
			return fmt.Errorf("half a commit: %d is the last of %s, %d of %s", last[i-1], w.Names[i-1], last[i], name)
		}
	}
	return nil
}

// judgeOne returns the number of the last commit in a database.
func (w work) judgeOne(name, how string, acked int, ok bool) (last int, err error) {
	if _, err := os.Stat(w.path(name)); err != nil {
		if ok {
			return 0, fmt.Errorf("the database is gone: commit %d was acknowledged", acked)
		}
		return 0, nil
	}
	const (
		check  = "PRAGMA integrity_check"
		schema = "SELECT count(*) FROM sqlite_schema"
		counts = `SELECT (SELECT n FROM n) || ' ' || (SELECT count(*) FROM a) || ' ' ||
			(SELECT coalesce(max(id), 0) FROM a) || ' ' || (SELECT coalesce(max(id), 0) FROM b)`
	)
	var answers []string
	if how == "cli" {
		answers, err = shell(w.path(name), check, schema)
		if err == nil && len(answers) == 2 && answers[1] == "4" {
			var more []string
			more, err = shell(w.path(name), counts)
			answers = append(answers, more...)
		}
	} else {
		answers, err = w.ask(name, how, check, schema, counts)
	}
	switch {
	case len(answers) > 0 && answers[0] != "ok":
		return 0, fmt.Errorf("integrity_check: %s", answers[0])
	case len(answers) == 2 && answers[1] == "0" && !ok:
		return 0, nil
	case err != nil:
		return 0, err
	case len(answers) != 3 || answers[1] != "4":
		return 0, fmt.Errorf("answers %q where %d is acknowledged", answers, acked)
	}
	var rows, newest, others int
	if _, err := fmt.Sscan(answers[2], &last, &rows, &newest, &others); err != nil {
		return 0, fmt.Errorf("%q: %w", answers[2], err)
	}
	switch {
	case ok && last < acked:
		return 0, fmt.Errorf("commit %d was acknowledged, the last that is there is %d", acked, last)
	case rows != last || newest != last || others != last:
		return 0, fmt.Errorf("half a commit: %d in one table, %d rows up to %d and up to %d in the others", last, rows, newest, others)
	}
	return last, nil
}

// ask returns the first column of the first row of each query.
func (w work) ask(name, how string, queries ...string) (answers []string, err error) {
	if how == "os" {
		w.Params = ""
	}
	c, err := w.open(name, how)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	for _, sql := range queries {
		s, _, err := c.Prepare(sql)
		if err != nil {
			return answers, err
		}
		text := ""
		if s.Step() {
			text = s.ColumnText(0)
		}
		if err := s.Close(); err != nil {
			return answers, err
		}
		answers = append(answers, text)
	}
	return answers, nil
}

// shell runs queries with the program sqlite3.
func shell(path string, queries ...string) ([]string, error) {
	cmd := exec.Command("sqlite3", append([]string{"-bail", path}, strings.Join(queries, ";"))...)
	out, err := cmd.CombinedOutput()
	answers := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err != nil {
		return answers, fmt.Errorf("sqlite3: %w: %s", err, out)
	}
	return answers, nil
}

// seededVFS is the default VFS with a seeded bug: files of one kind, "journal", "wal" or "db", are
// not synced.
type seededVFS struct {
	vfs.VFS
	omit string
}

func (v *seededVFS) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	f, out, err := vfsutil.WrapOpenFilename(v.VFS, name, flags)
	if err != nil {
		return nil, flags, err
	}
	kind := map[vfs.OpenFlag]string{vfs.OPEN_MAIN_JOURNAL: "journal", vfs.OPEN_WAL: "wal", vfs.OPEN_MAIN_DB: "db"}[flags&
		(vfs.OPEN_MAIN_JOURNAL|vfs.OPEN_WAL|vfs.OPEN_MAIN_DB)]
	return &unsyncedFile{f, v.omit, kind}, out, nil
}

type unsyncedFile struct {
	vfs.File
	omit, kind string
}

func (f *unsyncedFile) Sync(flags vfs.SyncFlag) error {
	if f.kind == f.omit {
		return nil
	}
	return f.File.Sync(flags)
}

func (f *unsyncedFile) SharedMemory() vfs.SharedMemory { return vfsutil.WrapSharedMemory(f.File) }
func (f *unsyncedFile) HasMoved() (bool, error)        { return vfsutil.WrapHasMoved(f.File) }
func (f *unsyncedFile) PersistWAL() bool               { return vfsutil.WrapPersistWAL(f.File) }
func (f *unsyncedFile) SetPersistWAL(keep bool)        { vfsutil.WrapSetPersistWAL(f.File, keep) }
func (f *unsyncedFile) LockState() vfs.LockLevel       { return vfsutil.WrapLockState(f.File) }
func (f *unsyncedFile) PowersafeOverwrite() bool       { return vfsutil.WrapPowersafeOverwrite(f.File) }
func (f *unsyncedFile) SetPowersafeOverwrite(on bool)  { vfsutil.WrapSetPowersafeOverwrite(f.File, on) }
func (f *unsyncedFile) DeviceCharacteristics() vfs.DeviceCharacteristic {
	return f.File.DeviceCharacteristics() &^ vfs.IOCAP_BATCH_ATOMIC
}

// The durable log.

// runLog appends from several goroutines, one for each name, and again after the failure that w asks for.
func (w work) runLog(acked func(name string, n int)) error {
	err := w.appends(acked)
	if w.Fail == "" || err == nil {
		return err
	}
	if w.Dies {
		os.Exit(exitFailed)
	}
	acked(failed, 1)
	w.Fail = ""
	return w.appends(acked)
}

// appends appends Commits records for each name, behind those that are there.
func (w work) appends(acked func(name string, n int)) (err error) {
	l, err := appendlog.Open(w.path("log"), appendlog.Options{SegmentSize: 1 << 20, Ahead: w.Ahead})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	there, err := logged(l)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	errs := make([]error, len(w.Names))
	for i, name := range w.Names {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(w.Seed, uint64(i)))
			for n := there[name] + 1; n <= there[name]+w.Commits; n++ {
				p := record(name, n, rng.IntN(3000))
				if w.Fail == fmt.Sprint(name, " ", n) {
					p = append(p[:len(record(name, n, 0))], marker...)
				}
				if _, errs[i] = l.Append(p); errs[i] != nil {
					return
				}
				acked(name, n)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// record returns record n of a name, with more bytes than the minimum.
func record(name string, n, more int) []byte {
	p := fmt.Appendf(nil, "%s %d ", name, n)
	return append(p, bytes.Repeat([]byte{byte(n)}, more)...)
}

// logged returns the number of the last record of each name in a log.
func logged(l *appendlog.Log) (map[string]int, error) {
	found := map[string]int{}
	for r, err := range l.Records(appendlog.Position{}) {
		if err != nil {
			return nil, err
		}
		var name string
		var n int
		if _, err := fmt.Sscan(string(r.Data[:min(len(r.Data), 40)]), &name, &n); err != nil {
			return nil, fmt.Errorf("record %q: %w", r.Data[:min(len(r.Data), 40)], err)
		}
		if n != found[name]+1 {
			return nil, fmt.Errorf("record %d of %s follows record %d", n, name, found[name])
		}
		if head := record(name, n, 0); !bytes.Equal(r.Data[len(head):], bytes.Repeat([]byte{byte(n)}, len(r.Data)-len(head))) && !bytes.HasSuffix(r.Data, []byte(marker)) {
			return nil, fmt.Errorf("record %d of %s has wrong bytes", n, name)
		}
		found[name] = n
	}
	return found, nil
}

func (w work) judgeLog(q question) (err error) {
	if _, err := os.Stat(w.path("log")); err != nil && len(q.Acked) == 0 {
		return nil
	}
	l, err := appendlog.Open(w.path("log"), appendlog.Options{SegmentSize: 1 << 20, Ahead: w.Ahead})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	found, err := logged(l)
	if err != nil {
		return err
	}
	for _, name := range w.Names {
		if n := q.Acked[name]; found[name] < n {
			return fmt.Errorf("record %d of %s was acknowledged, the last that is there is %d", n, name, found[name])
		}
	}
	return nil
}

// Files.

const fileBlock = 8192

// runFiles writes numbered versions of blocks through ufile and syncs. An acknowledgement is about
// one block: a name identifies a file and a block.
func (w work) runFiles(acked func(name string, n int)) error {
	var wg sync.WaitGroup
	errs := make([]error, len(w.Names))
	for i, name := range w.Names {
		wg.Go(func() { errs[i] = w.runFile(name, rand.New(rand.NewPCG(w.Seed, uint64(i))), acked) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (w work) runFile(name string, rng *rand.Rand, acked func(name string, n int)) (err error) {
	f, err := ufile.OpenFile(w.path(name), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if w.Sync != entrySync {
		if err := syncDirectory(w.Dir); err != nil {
			return err
		}
	}
	for n := 1; n <= w.Commits; n++ {
		// The file grows: some blocks are new, and some are overwritten.
		blocks := rng.Perm(4 + n/2)[:1+rng.IntN(3)]
		for _, b := range blocks {
			if _, err := f.WriteAt(bytes.Repeat([]byte{byte(n)}, fileBlock), int64(b)*fileBlock); err != nil {
				return err
			}
		}
		if err := w.sync(f); err != nil {
			return err
		}
		for _, b := range blocks {
			acked(fmt.Sprintf("%s %d", name, b), n)
		}
	}
	return nil
}

// sync makes a file durable in the work's way.
func (w work) sync(f *ufile.File) (err error) {
	if w.Sync == "" {
		return f.Sync()
	}
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	cerr := c.Control(func(fd uintptr) {
		if strings.HasPrefix(w.Sync, "syncfs") {
			err = unix.Syncfs(int(fd))
		}
		if err == nil && strings.HasSuffix(w.Sync, "fdatasync") {
			err = unix.Fdatasync(int(fd))
		}
	})
	return errors.Join(err, cerr)
}

func syncDirectory(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// judgeFiles accepts sectors that are newer than acknowledged, because a later write may have
// reached the disk before it was synced.
func (w work) judgeFiles(q question) error {
	for key, n := range q.Acked {
		name, block, _ := strings.Cut(key, " ")
		var b int64
		if _, err := fmt.Sscan(block, &b); err != nil {
			return err
		}
		f, err := os.Open(w.path(name))
		if err != nil {
			return err
		}
		p := make([]byte, fileBlock)
		_, err = f.ReadAt(p, b*fileBlock)
		f.Close()
		if err != nil {
			return fmt.Errorf("block %s: %w", key, err)
		}
		if oldest := slices.Min(p); int(oldest) < n {
			return fmt.Errorf("block %s: version %d was synced, version %d is there", key, n, oldest)
		}
	}
	return nil
}

// Failed writes.

// badBlock is content whose write fails.
var badBlock = bytes.Repeat([]byte("this write fails"), pageSize/16)

// runFailure overwrites a page of a synced file with badBlock. It notes the result of each call: 1
// for an error.
func (w work) runFailure(acked func(name string, n int)) (err error) {
	f, err := os.OpenFile(w.path("file"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteAt(make([]byte, len(badBlock)), 0); err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), syncDirectory(w.Dir)); err != nil {
		return err
	}
	if _, err := f.WriteAt(badBlock, 0); err != nil {
		return err
	}
	fd := int(f.Fd())
	for _, call := range []struct {
		name string
		err  error
	}{
		{"syncfs", unix.Syncfs(fd)},
		{"sync_file_range", unix.SyncFileRange(fd, 0, 0, unix.SYNC_FILE_RANGE_WAIT_BEFORE)},
		{"fdatasync", unix.Fdatasync(fd)},
	} {
		n := 0
		if call.err != nil {
			n = 1
		}
		acked(call.name, n)
	}
	return nil
}
