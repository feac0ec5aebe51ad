// SPDX-License-Identifier: MIT

package s3

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/ringside-io/ringside/internal/testing/bucket"
	"github.com/ringside-io/ringside/sqlitevfs/backup"
)

// TestServer runs backups to a bucket of versitygw.
// Promise: sqlitevfs/backup-store-fails
func TestServer(t *testing.T) {
	b := bucket.Start(t)
	for _, c := range []struct {
		name string
		run  func(t *testing.T, b *serverTest)
	}{
		{"target", testServerTarget}, {"large", testServerLarge}, {"list", testServerList}, {"faults", testServerFaults}, {"outages", testServerOutages},
		{"damage", testServerDamage}, {"clock", testServerClock}, {"retention", testServerRetention},
	} {
		t.Run(c.name, func(t *testing.T) {
			b.Fail(nil)
			c.run(t, &serverTest{Bucket: b, prefix: c.name})
		})
	}
}

// serverTest is a prefix of a bucket, and the credentials of its client, which can be lost.
type serverTest struct {
	*bucket.Bucket
	prefix string
	lost   atomic.Bool
	number int
}

// Retrieve implements credentials.Provider.
func (s *serverTest) Retrieve() (credentials.Value, error) {
	v := credentials.Value{AccessKeyID: bucket.Key, SecretAccessKey: bucket.Secret, SignerType: credentials.SignatureV4}
	if s.lost.Load() {
		v.SecretAccessKey = "another"
	}
	return v, nil
}

// RetrieveWithCredContext implements credentials.Provider.
func (s *serverTest) RetrieveWithCredContext(*credentials.CredContext) (credentials.Value, error) {
	return s.Retrieve()
}

// IsExpired implements credentials.Provider: each request asks.
func (s *serverTest) IsExpired() bool { return true }

// target returns a target without objects.
func (s *serverTest) target(t *testing.T) *Target {
	t.Helper()
	s.number++
	to, err := New(Options{
		Endpoint: s.Endpoint, Bucket: bucket.Name, Prefix: fmt.Sprintf("%s/%d", s.prefix, s.number), Insecure: true, Region: bucket.Region,
		Credentials: credentials.New(s), Timeout: 20 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	return to
}

func testServerTarget(t *testing.T, s *serverTest) {
	to := s.target(t)
	putGetDelete(t, to)
	ctx := t.Context()
	put := func(text string) error {
		return to.Put(ctx, "once", io.NewSectionReader(strings.NewReader(text), 0, int64(len(text))), time.Now())
	}
	if err := put("first"); err != nil {
		t.Fatal(err)
	}
	if err := put("second"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("another object of the name: %v", err)
	}
	if p := read(t, to, "once"); string(p) != "first" || to.replaces.Load() {
		t.Errorf("%q, replaced: %v", p, to.replaces.Load())
	}
}

// testServerLarge stores objects of several parts, while parts are cut off.
func testServerLarge(t *testing.T, s *serverTest) {
	to := s.target(t)
	to.whole = 5 << 20 // the least size of a part
	body := make([]byte, 12<<20)
	for i := range body {
		body[i] = byte(i >> 10)
	}
	put := func(name string) error {
		return to.Put(t.Context(), name, io.NewSectionReader(bytes.NewReader(body), 0, int64(len(body))), time.Now())
	}
	s.Fail(func(_ int64, r *http.Request) bucket.Fault {
		return bucket.Fault{CutBody: r.URL.Query().Get("partNumber") == "2"}
	})
	if err := put("large"); err == nil || errors.Is(err, fs.ErrExist) {
		t.Errorf("a part was cut off: %v", err)
	}
	s.Fail(nil)
	if all, err := to.List(t.Context(), ""); err != nil || len(all) > 0 {
		t.Errorf("the part of an object is there: %v, %v", all, err)
	}
	if err := put("large"); err != nil {
		t.Fatal(err)
	}
	first := bytes.Clone(body)
	body[7<<20]++
	if err := put("large"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("another object of the name: %v", err)
	}
	if !bytes.Equal(read(t, to, "large"), first) {
		t.Error("the object has other bytes")
	}
	to.whole = maxWhole
	if err := put("large"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("another object of the name, in one request: %v", err)
	}
	if err := put("whole"); err != nil || !bytes.Equal(read(t, to, "whole"), body) {
		t.Errorf("in one request: %v", err)
	}
}

func read(t *testing.T, to backup.Target, name string) []byte {
	t.Helper()
	r, err := to.Get(t.Context(), name, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// testServerList lists more objects than a request brings, and removes them. A list that breaks off is no shorter list.
func testServerList(t *testing.T, s *serverTest) {
	const objects = 1100
	to := s.target(t)
	ctx := t.Context()
	var names []string
	var all sync.WaitGroup
	var failed atomic.Pointer[error]
	places := make(chan struct{}, 8)
	for i := range objects {
		name := fmt.Sprintf("x/ltx/0/%016x", i)
		names = append(names, name)
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			if err := to.Put(ctx, name, io.NewSectionReader(strings.NewReader("text"), 0, 4), time.Now()); err != nil {
				failed.Store(&err)
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		t.Fatal(*err)
	}
	before := s.Requests()
	got, err := to.List(ctx, "x/ltx/")
	var had []string
	for _, o := range got {
		had = append(had, o.Name)
	}
	if slices.Sort(had); err != nil || !slices.Equal(had, names) {
		t.Errorf("%d objects are listed of %d: %v", len(had), objects, err)
	}
	if n := s.Requests() - before; n != 2 {
		t.Errorf("%d requests of a list, want 2", n)
	}
	for _, f := range []bucket.Fault{{Status: http.StatusServiceUnavailable}, {Refuse: true}, {CutAnswer: true}} {
		var asked atomic.Int64
		s.Fail(func(int64, *http.Request) bucket.Fault {
			if asked.Add(1) >= 2 { // the transport repeats what no answer has begun to
				return f
			}
			return bucket.Fault{}
		})
		if got, err := to.List(ctx, "x/ltx/"); err == nil {
			t.Errorf("%+v in the middle of a list: %d objects without an error", f, len(got))
		}
	}
	s.Fail(nil)
	before = s.Requests()
	if err := to.Delete(ctx, names...); err != nil {
		t.Error(err)
	}
	if n := s.Requests() - before; n != 2 {
		t.Errorf("%d requests to remove %d objects, want 2", n, objects)
	}
	if got, err := to.List(ctx, "x/"); err != nil || len(got) > 0 {
		t.Errorf("%d objects are left, %v", len(got), err)
	}
}

// testServerFaults backs up, restores and verifies while one request of seven fails.
func testServerFaults(t *testing.T, s *serverTest) {
	for name, f := range map[string]bucket.Fault{
		"503": {Status: http.StatusServiceUnavailable}, "500": {Status: http.StatusInternalServerError}, "refused": {Refuse: true},
		"cut object": {CutBody: true}, "cut answer": {CutAnswer: true}, "lost answer": {Lose: true}, "slow": {Delay: 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			to := s.target(t)
			s.Fail(func(n int64, _ *http.Request) bucket.Fault {
				if n%7 == 1 { // no repeated step has seven requests
					return f
				}
				return bucket.Fault{}
			})
			defer s.Fail(nil)
			stats := backUp(t, to)
			// A lost answer is made up for by a look at the object, and a cut one by a second read.
			if failed := name != "slow"; failed != (stats.Failures > 0) && name != "cut answer" && name != "lost answer" {
				t.Errorf("%d failures", stats.Failures)
			}
		})
	}
}

// tenant is a database with a backup.
type tenant struct {
	*sql.DB
	b       *backup.Backup
	dir     string
	commits int
}

func newTenant(t *testing.T, to backup.Target, o backup.Options) *tenant {
	t.Helper()
	o.Dir, o.Target, o.Interval, o.Logger = t.TempDir(), to, 5*time.Millisecond, slog.New(slog.NewTextHandler(t.Output(), nil))
	b, err := backup.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	x := &tenant{b: b, dir: o.Dir}
	if x.DB, err = sql.Open("sqlite3", "file:"+x.path()+"?vfs=ringside-log&_pragma=journal_mode(wal)&_pragma=synchronous(full)"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.DB.Close() })
	if _, err := x.Exec("CREATE TABLE t(id INTEGER PRIMARY KEY, body)"); err != nil {
		t.Fatal(err)
	}
	return x
}

func (x *tenant) path() string { return filepath.Join(x.dir, "tenant.db") }

// commit makes commits, each an object.
func (x *tenant) commit(t *testing.T, n int) {
	t.Helper()
	for range n {
		if _, err := x.Exec("INSERT INTO t(body) VALUES(randomblob(2000))"); err != nil {
			t.Fatal(err)
		}
		x.commits++
	}
}

func (x *tenant) sync(t *testing.T) {
	t.Helper()
	if err := x.b.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// check restores the database, which has all commits, and verifies the stream.
func (x *tenant) check(t *testing.T, to backup.Target) {
	t.Helper()
	if n, err := rows(t, to); err != nil || n != x.commits {
		t.Errorf("restored %d commits of %d: %v", n, x.commits, err)
	}
	if r, err := backup.Verify(t.Context(), to, "tenant.db"); err != nil || len(r.Problems) > 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// rows restores the database, and returns the number of its commits. Stock SQLite checks it, too.
func rows(t *testing.T, to backup.Target) (n int, err error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "restored.db")
	if _, err := backup.Restore(t.Context(), to, "tenant.db", path, backup.RestoreOptions{}); err != nil {
		return 0, err
	}
	if exe, err := exec.LookPath("sqlite3"); err == nil {
		if out, err := exec.Command(exe, "-readonly", path, "PRAGMA integrity_check").CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "ok" {
			t.Errorf("sqlite3: %s: %v", out, err)
		}
	}
	db, err := sql.Open("sqlite3", "file:"+path+"?mode=ro")
	if err != nil {
		return 0, err
	}
	defer db.Close()
	err = db.QueryRow("SELECT count(*) FROM t, pragma_integrity_check WHERE integrity_check = 'ok'").Scan(&n)
	return n, err
}

// testServerOutages backs up to a store that fails for a time. The state says why, and all commits are there afterwards.
func testServerOutages(t *testing.T, s *serverTest) {
	all := func(f bucket.Fault) (begin, end func()) {
		return func() { s.Fail(func(int64, *http.Request) bucket.Fault { return f }) }, func() { s.Fail(nil) }
	}
	for name, c := range map[string]struct {
		fault      bucket.Fault
		begin, end func()
		says       string
	}{
		"503":         {fault: bucket.Fault{Status: http.StatusServiceUnavailable}, says: "503"},
		"refused":     {fault: bucket.Fault{Refuse: true}, says: "Connection closed"},
		"clock":       {fault: bucket.Fault{Clock: 20 * time.Minute}, says: remedies["RequestTimeTooSkewed"]},
		"slow clock":  {fault: bucket.Fault{Clock: -20 * time.Minute}, says: remedies["RequestTimeTooSkewed"]},
		"credentials": {begin: func() { s.lost.Store(true) }, end: func() { s.lost.Store(false) }, says: remedies["SignatureDoesNotMatch"]},
		"killed":      {begin: s.Kill, end: s.Restart, says: "Connection closed"},
	} {
		t.Run(name, func(t *testing.T) {
			begin, end := all(c.fault)
			if c.begin != nil {
				begin, end = c.begin, c.end
			}
			to := s.target(t)
			x := newTenant(t, to, backup.Options{})
			x.commit(t, 3)
			x.sync(t)
			begin()
			x.commit(t, 3)
			for end := time.Now().Add(time.Minute); x.b.Stats().Failures < 2; time.Sleep(5 * time.Millisecond) {
				if time.Now().After(end) {
					t.Error("nothing fails")
					break
				}
			}
			if st := x.b.Stats(); st.Behind != 1 || st.Lag == 0 || !strings.Contains(st.Error, c.says) {
				t.Errorf("%+v, want %q", st, c.says)
			}
			end()
			x.sync(t)
			x.commit(t, 2)
			x.sync(t)
			x.check(t, to)
			x.b.Close()
		})
	}
}

// testServerDamage changes a bucket: objects are lost, are there under another name too, have each other's names, or the bytes
// of other objects. Verify finds each, and Restore writes no wrong state.
func testServerDamage(t *testing.T, s *serverTest) {
	to := s.target(t)
	x := newTenant(t, to, backup.Options{})
	for range 8 {
		x.commit(t, 1)
		x.sync(t)
	}
	x.check(t, to)
	x.b.Close()
	ctx := t.Context()
	files, err := backup.Files(ctx, to, "tenant.db")
	files = slices.DeleteFunc(files, func(f backup.File) bool { return f.Level != 0 })
	if err != nil || len(files) < 7 {
		t.Fatalf("%d objects, %v", len(files), err)
	}
	has := make(map[string][]byte)
	var names []string
	for _, f := range files {
		names = append(names, f.Object("tenant.db"))
		has[f.Object("tenant.db")] = read(t, to, f.Object("tenant.db"))
	}
	set := func(name string, p []byte) {
		t.Helper()
		if err := to.Delete(ctx, name); err != nil {
			t.Fatal(err)
		}
		if p == nil {
			return
		}
		if err := to.Put(ctx, name, io.NewSectionReader(bytes.NewReader(p), 0, int64(len(p))), time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	last := files[len(files)-1]
	next := backup.File{Min: last.Max + 1, Max: last.Max + 1}.Object("tenant.db")
	wide := backup.File{Min: files[2].Min, Max: files[3].Max}.Object("tenant.db")
	for what, damage := range map[string]map[string][]byte{
		"lost":              {names[3]: nil},
		"several lost":      {names[2]: nil, names[4]: nil},
		"doubled":           {next: has[names[len(names)-1]]},
		"doubled, as more":  {wide: has[names[2]]},
		"reordered":         {names[2]: has[names[3]], names[3]: has[names[2]]},
		"the last exchange": {names[len(names)-1]: has[names[len(names)-2]], names[len(names)-2]: has[names[len(names)-1]]},
		"cut":               {names[3]: has[names[3]][:len(has[names[3]])/2]},
		"empty":             {names[3]: {}},
	} {
		for name, p := range damage {
			set(name, p)
		}
		r, err := backup.Verify(ctx, to, "tenant.db")
		if err != nil || len(r.Problems) == 0 {
			t.Errorf("%s: not found: %+v, %v", what, r, err)
		}
		if n, err := rows(t, to); err == nil && n != x.commits {
			t.Errorf("%s: restored %d commits of %d without an error", what, n, x.commits)
		}
		for name := range damage {
			set(name, has[name])
		}
	}
	x.check(t, to)

	// The newest object alone: the names do not show it, and the database does.
	set(names[len(names)-1], nil)
	x.DB.Close()
	if same, err := backup.Current(ctx, to, "tenant.db", x.path()); same || err != nil {
		t.Errorf("the target seems to have all commits without the last object: %v", err)
	}
}

// testServerClock has a store whose times of objects are ten minutes later than the commits in them. The next Backup stores a
// commit that the newest object does not have, though nothing opens its database.
func testServerClock(t *testing.T, s *serverTest) {
	s.Fail(func(int64, *http.Request) bucket.Fault { return bucket.Fault{Shift: 10 * time.Minute} })
	defer s.Fail(nil)
	to := s.target(t)
	x := newTenant(t, to, backup.Options{})
	x.commit(t, 3)
	x.sync(t)
	if files, err := backup.Files(t.Context(), to, "tenant.db"); err != nil || len(files) == 0 || time.Until(files[0].Time) < 5*time.Minute {
		t.Fatalf("%+v, %v", files, err)
	}
	x.b.Close()
	x.commit(t, 1)
	x.DB.Close()
	b, err := backup.Start(backup.Options{Dir: x.dir, Target: to, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	x.check(t, to)
}

// testServerRetention backs up with retention and compaction for longer than the first level waits.
func testServerRetention(t *testing.T, s *serverTest) {
	to := s.target(t)
	x := newTenant(t, to, backup.Options{SnapshotEvery: 12 * time.Second, Keep: 10 * time.Second})
	levels := make(map[int]bool)
	most := 0
	for end := time.Now().Add(50 * time.Second); time.Now().Before(end); {
		for range 10 {
			x.commit(t, 1)
			time.Sleep(100 * time.Millisecond)
		}
		files, err := backup.Files(t.Context(), to, "tenant.db")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			levels[f.Level] = true
		}
		most = max(most, len(files))
	}
	x.sync(t)
	x.check(t, to)
	r, err := backup.Look(t.Context(), to, "tenant.db")
	st := x.b.Stats()
	t.Logf("%d objects were stored in %d requests, there were at most %d, %d are left; levels %v", st.Objects, st.Requests, most, r.Objects, levels)
	if err != nil || uint64(r.Objects)*2 > st.Objects || !levels[1] || !levels[9] || st.Failures > 0 {
		t.Errorf("%+v, %+v, %v", r, st, err)
	}
	x.b.Close()
	x.DB.Close()
	if same, err := backup.Current(t.Context(), to, "tenant.db", x.path()); !same || err != nil {
		t.Errorf("the target has not all commits: %v", err)
	}
}
