// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/bucket"
	"github.com/ringside-io/ringside/sqlitevfs/backup"
	"github.com/ringside-io/ringside/sqlitevfs/backup/s3"
)

var long = flag.Duration("long", 0, "how long TestBackupUnderFaults plays; 0 is a few seconds")

// machines are three nodes in processes of their own with one continuous backup.
type machines struct {
	t      *testing.T
	target string
	dirs   map[string]string
	addrs  map[string]string
	mu     sync.Mutex
	nodes  map[string]*exec.Cmd
	out    map[string]*buffer
}

// newMachines starts the nodes. An empty target is a directory.
func newMachines(t *testing.T, target string) *machines {
	place := t.TempDir()
	if target == "" {
		target = filepath.Join(place, "target")
	}
	m := &machines{t: t, target: target, dirs: make(map[string]string), addrs: freeAddresses(t, "a", "b", "c"),
		nodes: make(map[string]*exec.Cmd), out: make(map[string]*buffer)}
	for id := range m.addrs {
		m.dirs[id] = filepath.Join(place, id)
	}
	t.Cleanup(func() {
		for id, out := range m.out {
			if m.stop(id, syscall.SIGKILL); t.Failed() {
				t.Logf("node %s:\n%s", id, out)
			}
		}
	})
	for id := range m.addrs {
		m.start(id)
	}
	return m
}

func (m *machines) start(id string) {
	var peers []string
	for id, address := range m.addrs {
		peers = append(peers, id+"="+address)
	}
	cmd, out := process(m.t, "run", "-election", "500ms", "-id", id, "-dir", m.dirs[id], "-listen", m.addrs[id], "-peers", strings.Join(peers, ","), "-backup", m.target)
	m.mu.Lock()
	m.nodes[id], m.out[id] = cmd, out
	m.mu.Unlock()
	eventually(m.t, "node "+id+" listens", func() error {
		if !strings.Contains(out.String(), "listens at") {
			return errors.New(out.String())
		}
		return nil
	})
}

// stop ends a process.
func (m *machines) stop(id string, by syscall.Signal) {
	m.mu.Lock()
	cmd := m.nodes[id]
	delete(m.nodes, id)
	m.mu.Unlock()
	if cmd != nil {
		_ = cmd.Process.Signal(by)
		_ = cmd.Wait()
	}
}

// leader returns the node that leads.
func (m *machines) leader() (id string) {
	m.t.Helper()
	eventually(m.t, "a node leads", func() error {
		for id = range m.dirs {
			code, out, _ := command("status", "-timeout", "1s", "-dir", m.dirs[id])
			if code == exitOK && strings.Contains(out, "(leader)") {
				return nil
			}
		}
		return errors.New("none leads")
	})
	return id
}

// succeed repeats a command on the leader until it succeeds.
func (m *machines) succeed(name string, args ...string) (out string) {
	m.t.Helper()
	eventually(m.t, name, func() error {
		code, stdout, errs := command(append([]string{name, "-dir", m.dirs[m.leader()]}, args...)...)
		if out = stdout; code != exitOK {
			return errors.New(errs)
		}
		return nil
	})
	return out
}

// insert inserts numbers into a database until stop is closed. It returns those that were acknowledged.
func (m *machines) insert(database string, stop <-chan struct{}) (acknowledged []int) {
	for n, at := 1, ""; ; n++ {
		select {
		case <-stop:
			return acknowledged
		default:
		}
		if at == "" {
			at = m.leader()
		}
		code, _, _ := command("exec", "-timeout", "5s", "-dir", m.dirs[at], database, fmt.Sprintf("INSERT INTO t VALUES(%d, randomblob(%d))", n, n*37%9000))
		if code != exitOK {
			at = ""
			continue
		}
		acknowledged = append(acknowledged, n)
	}
}

// TestBackupUnderFaults has three nodes whose leader is killed, stopped for longer than an election, and replaced while clients commit. Databases are
// created, and deleted. Afterwards the backup has all acknowledged commits, no object of it contradicts another, and its states
// are those of the files of the last leader, page for page. A new cluster gets them.
// Promise: replica/backup-continues
func TestBackupUnderFaults(t *testing.T) {
	t.Parallel()
	for seed, end := uint64(1), time.Now().Add(*long); ; seed++ {
		playBackup(t, seed, "", func() {})
		if t.Failed() || time.Now().After(end) {
			return
		}
	}
}

// TestBackupUnderFaultsOnServer is the same with a bucket of versitygw, of whose requests one in eight fails.
// Promise: replica/backup-continues
// Promise: sqlitevfs/backup-store-fails
func TestBackupUnderFaultsOnServer(t *testing.T) {
	b := bucket.Start(t)
	t.Setenv("AWS_ACCESS_KEY_ID", bucket.Key)
	t.Setenv("AWS_SECRET_ACCESS_KEY", bucket.Secret)
	faults := []bucket.Fault{{Status: 503}, {Refuse: true}, {CutBody: true}, {CutAnswer: true}, {Lose: true}, {Delay: 300 * time.Millisecond}}
	for seed, end := uint64(1), time.Now().Add(*long); ; seed++ {
		b.Fail(func(n int64, _ *http.Request) bucket.Fault {
			if n%8 == 0 {
				return faults[n/8%int64(len(faults))]
			}
			return bucket.Fault{}
		})
		playBackup(t, seed, b.URL(fmt.Sprint(seed)), func() { b.Fail(nil) })
		t.Logf("seed %d: %d requests so far", seed, b.Requests())
		if t.Failed() || time.Now().After(end) {
			return
		}
	}
}

// playBackup backs up to a target, whose faults it ends before it stops the last leader.
func playBackup(t *testing.T, seed uint64, target string, noFaults func()) {
	m := newMachines(t, target)
	r := rand.New(rand.NewPCG(seed, 32))
	names := []string{"x.db", "dir/y.db"}
	for _, name := range append(names, "gone.db") {
		m.succeed("create", name)
		m.succeed("exec", name, "CREATE TABLE IF NOT EXISTS t(n INTEGER PRIMARY KEY, pad)")
	}
	stop := make(chan struct{})
	acknowledged := make([][]int, len(names))
	var over sync.WaitGroup
	for i, name := range names {
		over.Go(func() { acknowledged[i] = m.insert(name, stop) })
	}
	var faults atomic.Int64
	for k := range 5 {
		time.Sleep(time.Duration(200+r.IntN(700)) * time.Millisecond)
		at := m.leader()
		switch (k + int(seed)) % 3 {
		case 0:
			m.stop(at, syscall.SIGKILL)
			m.start(at)
		case 1:
			m.succeed("transfer")
		case 2:
			m.mu.Lock()
			p := m.nodes[at].Process
			m.mu.Unlock()
			_ = p.Signal(syscall.SIGSTOP)
			time.Sleep(1200 * time.Millisecond)
			_ = p.Signal(syscall.SIGCONT)
		}
		faults.Add(1)
		if k == 2 {
			m.succeed("delete", "gone.db")
			late := fmt.Sprintf("late%d.db", seed)
			m.succeed("create", late)
			m.succeed("exec", late, "CREATE TABLE IF NOT EXISTS t(n INTEGER PRIMARY KEY, pad); INSERT OR IGNORE INTO t VALUES(1, 2)")
			names, acknowledged = append(names, late), append(acknowledged, []int{1})
		}
	}
	close(stop)
	over.Wait()
	eventually(t, "the leader says that it has the backup", func() error {
		if out := m.succeed("status"); !strings.Contains(out, "by this node, ") {
			return errors.New(out)
		}
		return nil
	})
	noFaults()
	at := m.leader()
	m.stop(at, syscall.SIGTERM) // the leader first: without a majority it would not store what the target lacks
	for id := range m.dirs {
		m.stop(id, syscall.SIGTERM)
	}
	m.judge(at, names, acknowledged)
}

// judge compares the backup with the files of a node that does not run, and with what was acknowledged.
func (m *machines) judge(id string, names []string, acknowledged [][]int) {
	t := m.t
	t.Helper()
	target, err := s3.ParseTarget(m.target)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	all, err := backup.Databases(ctx, target)
	if err != nil || len(all) != len(names)+1 {
		t.Fatalf("the backup has %d databases, want %d: %v", len(all), len(names)+1, err)
	}
	for _, b := range all {
		if v, err := backup.Verify(ctx, target, b.Name); err != nil || len(v.Problems) > 0 {
			t.Errorf("%s: %v %v", b.Name, v.Problems, err)
		}
		if gone := b.Name == "gone.db"; gone == b.Deleted.IsZero() {
			t.Errorf("%s: deleted %v", b.Name, b.Deleted)
		}
	}
	for i, name := range names {
		same, err := backup.Current(ctx, target, name, filepath.Join(m.dirs[id], "data", filepath.FromSlash(name)))
		if err != nil || !same {
			t.Errorf("%s: the backup has not the state of node %s (%v)", name, id, err)
		}
		if len(acknowledged[i]) == 0 {
			t.Errorf("%s: no commit was acknowledged", name)
		}
	}
	fresh := filepath.Join(t.TempDir(), "fresh")
	address := freeAddresses(t, "fresh")["fresh"]
	stop := node(t, "-id", "fresh", "-dir", fresh, "-listen", address, "-peers", "fresh="+address, "-election", "200ms")
	defer stop()
	eventually(t, "the new cluster", func() error {
		code, _, errs := command("restore", "-missing", "-dir", fresh, m.target)
		if code != exitOK {
			return errors.New(errs)
		}
		return nil
	})
	for i, name := range names {
		code, out, errs := command("query", "-json", "-dir", fresh, name, "SELECT (SELECT group_concat(n) FROM t), * FROM pragma_integrity_check")
		if code != exitOK || !strings.Contains(out, `"ok"`) {
			t.Errorf("%s: %s %s", name, out, errs)
		}
		_, list, _ := strings.Cut(out, `"`)
		has := make(map[string]bool)
		for n := range strings.FieldsFuncSeq(list, func(r rune) bool { return r < '0' || r > '9' }) {
			has[n] = true
		}
		for _, n := range acknowledged[i] {
			if !has[fmt.Sprint(n)] {
				t.Errorf("%s: the backup lacks the acknowledged commit %d of %d", name, n, len(acknowledged[i]))
				break
			}
		}
		t.Logf("%s: %d commits", name, len(acknowledged[i]))
	}
	if code, out, errs := command("restore", "-dir", fresh, m.target); code != exitFailure || !strings.Contains(errs, "-missing") {
		t.Errorf("restored over databases: %d %s %s", code, out, errs)
	}
	if _, err := os.Stat(filepath.Join(fresh, "data", "gone.db")); err == nil {
		t.Error("a deleted database was restored")
	}
}
