// SPDX-License-Identifier: MIT

package replica

import (
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestNames: a database whose file no node could make is not created. Snapshots would wait for it for ever.
// Promise: replica/name-whose-file
func TestNames(t *testing.T) {
	c := newCluster(t, 3, Options{})
	leader := c.leader()
	ctx := t.Context()
	for _, name := range []string{"a\xff", "x-wal/y", "x.new/y", strings.Repeat("x", 250), "dir/" + strings.Repeat("x", 250) + "/y"} {
		if err := leader.Create(ctx, name, CreateOptions{}); err == nil {
			t.Errorf("%q was created", name)
		}
	}
	create := func(name string) error {
		p := createOp(t, leader, name) // the state machine decides, not the check before it
		leader.proposer.enqueue(ctx, p)
		return <-p.done
	}
	longest := strings.Repeat("x", 240)
	must(t, create("a"))
	must(t, create("b/c/d"))
	must(t, create(longest+"/"+longest))
	for _, name := range []string{"a/b", "a/b/c", "b", "b/c", longest} {
		if err := create(name); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%q: %v", name, err)
		}
		if err := leader.Create(ctx, name, CreateOptions{}); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"b/c/d", "a"} {
		must(t, leader.Delete(ctx, name))
	}
	for _, name := range []string{"b/c", "a/b", longest + "/y"} {
		must(t, create(name))
		execAll(t, open(t, leader, name), "CREATE TABLE t(x)")
	}
	c.judge()
	must(t, leader.raft.Snapshot().Error())
	for id := range c.addrs {
		c.stop(id)
		c.start(id)
	}
	c.judge()
	if got, want := fmt.Sprint(c.leader().List()), fmt.Sprint([]string{"a/b", "b/c", longest + "/" + longest, longest + "/y"}); got != want {
		t.Errorf("the databases %s, want %s", got, want)
	}
}

// TestDirectoryBehindLink: SQLite resolves symbolic links in the names of files.
// Promise: replica/name-whose-file
func TestDirectoryBehindLink(t *testing.T) {
	t.Parallel()
	dir, address := t.TempDir(), freeAddress(t)
	must(t, os.Mkdir(filepath.Join(dir, "real"), 0o700))
	must(t, os.Symlink("real", filepath.Join(dir, "link")))
	o := Options{ID: "a", Dir: filepath.Join(dir, "link", "a"), Listen: address, Peers: map[string]string{"a": address}}
	n, err := Open(o)
	must(t, err)
	defer n.Close()
	ctx, cancel := contextFor(t)
	defer cancel()
	must(t, n.Do(ctx, "db", func(tx *sql.Tx) error {
		_, err := tx.Exec("CREATE TABLE t(x)")
		return err
	}))

	own := freeAddress(t)
	long, err := filepath.EvalSymlinks(dir)
	must(t, err)
	long = filepath.Join(long, strings.Repeat("x", 200), strings.Repeat("x", 200), "x")
	long += strings.Repeat("x", maxData-len(long)-len("/data"))
	longest := strings.Repeat("y", maxPart) + "/" + strings.Repeat("z", maxPart) + "/zzzz"
	limit, err := Open(Options{ID: "a", Dir: long, Listen: own, Peers: map[string]string{"a": own}})
	must(t, err)
	defer limit.Close()
	must(t, limit.Do(ctx, longest, func(tx *sql.Tx) error {
		_, err := tx.Exec("CREATE TABLE t(x)")
		return err
	}))

	o.Dir = filepath.Join(dir, strings.Repeat("x", 200), strings.Repeat("x", 200), strings.Repeat("x", 200))
	if n, err := Open(o); err == nil || !strings.Contains(err.Error(), "Options.Dir") {
		t.Errorf("a path that is too long for SQLite: %v", err)
		if err == nil {
			n.Close()
		}
	}
}

// TestNoTemporaryDirectory: a node needs no directory beside its own.
func TestNoTemporaryDirectory(t *testing.T) {
	dir, address := filepath.Join(t.TempDir(), "100%"), freeAddress(t)
	t.Setenv("TMPDIR", filepath.Join(dir, "missing"))
	n, err := Open(Options{ID: "a", Dir: dir, Listen: address, Peers: map[string]string{"a": address}})
	must(t, err)
	defer n.Close()
	ctx, cancel := contextFor(t)
	defer cancel()
	until(t, "the node leads", func() bool { return n.role.leader() != nil })
	must(t, n.Create(ctx, "db", CreateOptions{PageSize: 2048, AutoVacuum: true}))
	execAll(t, open(t, n, "db"), "CREATE TABLE t(x)")
}

// TestSecondProcess: a node that is started with the directory of a running one changes nothing in it.
func TestSecondProcess(t *testing.T) {
	c := newCluster(t, 1, Options{})
	n := c.leader()
	path := n.catalog.staging([]byte("part"))
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(t, os.WriteFile(path, []byte("restored"), 0o600))
	o := c.options("a")
	o.Listen = freeAddress(t)
	if second, err := Open(o); err == nil {
		second.Close()
		t.Error("two nodes have one directory")
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

// TestBackupIsDurable: the names of a backup's files are durable before backup.json says that it is complete.
func TestBackupIsDurable(t *testing.T) {
	var mu sync.Mutex
	var synced []string
	around := func(path string, sync func() error) error {
		mu.Lock()
		synced = append(synced, path)
		mu.Unlock()
		return sync()
	}
	c := newCluster(t, 1, Options{disk: disk{around: around}})
	n := c.leader()
	execAll(t, open(t, n, "tenants/1"), "CREATE TABLE t(x)")
	dir := filepath.Join(t.TempDir(), "backup")
	must(t, n.Backup(t.Context(), dir))
	mu.Lock()
	defer mu.Unlock()
	complete := false
	missing := map[string]bool{filepath.Dir(dir): true, dir: true, filepath.Join(dir, "data"): true, filepath.Join(dir, "data", "tenants"): true, n.catalog.data: true}
	for _, path := range synced {
		complete = complete || strings.HasPrefix(path, filepath.Join(dir, backupFile))
		if !complete {
			delete(missing, path)
		}
	}
	if len(missing) > 0 || !complete {
		t.Errorf("not synced: %v", missing)
	}
}
