// SPDX-License-Identifier: MIT

package litestream

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/sqlitevfs/backup"
)

// nodes are the nodes of a cluster, each a process of the command ringside-replica that stores its backup in target.
type nodes struct {
	t           *testing.T
	exe, target string
	dirs        map[string]string
	processes   map[string]*exec.Cmd
}

func startNodes(t *testing.T) *nodes {
	t.Helper()
	n := &nodes{t, filepath.Join(scratch, "ringside-replica"), t.TempDir(), map[string]string{}, map[string]*exec.Cmd{}}
	if out, err := exec.Command("go", "build", "-o", n.exe, "github.com/ringside-io/ringside/replica/cmd/ringside-replica").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var peers []string
	addresses := freeAddresses(t)
	for id, address := range addresses {
		peers = append(peers, id+"="+address)
	}
	for id, address := range addresses {
		n.dirs[id] = t.TempDir()
		cmd := exec.Command(n.exe, "run", "-id", id, "-dir", n.dirs[id], "-listen", address, "-peers", strings.Join(peers, ","), "-backup", n.target)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		n.processes[id] = cmd
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
	return n
}

func freeAddresses(t *testing.T) map[string]string {
	t.Helper()
	addresses := map[string]string{}
	list := ringtest.FreeAddresses(t, ringtest.OwnHost(), 3)
	for i, id := range []string{"a", "b", "c"} {
		addresses[id] = list[i]
	}
	return addresses
}

// leader returns the ID of the node that leads.
func (n *nodes) leader() string {
	n.t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; {
		for id, dir := range n.dirs {
			if out, err := exec.Command(n.exe, "status", "-timeout", "1s", "-dir", dir).Output(); err == nil && strings.Contains(string(out), "(leader)") {
				return id
			}
		}
		if time.Now().After(end) {
			n.t.Fatal("there is no leader")
		}
	}
}

// succeed runs a command on the leader until it succeeds.
func (n *nodes) succeed(command string, args ...string) {
	n.t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; {
		out, err := exec.Command(n.exe, append([]string{command, "-dir", n.dirs[n.leader()]}, args...)...).CombinedOutput()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			n.t.Fatalf("%s %q: %v\n%s", command, args, err, out)
		}
	}
}

// TestRestoresClusterBackup restores by Litestream what the leaders of a cluster have written, one after the other.
// Promise: sqlitevfs/backup-litestream-restores
func TestRestoresClusterBackup(t *testing.T) {
	if os.Getenv("RINGSIDE_REFEREES") != "all" {
		t.Skip("needs RINGSIDE_REFEREES=all, and the module proxy: make referees sets it")
	}
	exe, err := program()
	if err != nil {
		t.Fatal(err)
	}
	n := startNodes(t)
	n.succeed("create", "a.db")
	n.succeed("exec", "a.db", "CREATE TABLE IF NOT EXISTS t(n INTEGER PRIMARY KEY, pad)")
	const rows = 30
	for i := range rows {
		n.succeed("exec", "a.db", fmt.Sprintf("INSERT OR REPLACE INTO t VALUES(%d, randomblob(3000))", i))
		if i%10 == 9 {
			n.succeed("transfer")
		}
	}
	// A leader that ends stores what it has acknowledged.
	last := n.leader()
	_ = n.processes[last].Process.Signal(syscall.SIGTERM)
	if err := n.processes[last].Wait(); err != nil {
		t.Error(err)
	}
	to := filepath.Join(t.TempDir(), "restored.db")
	if out, err := exec.Command(exe, "restore", "-o", to, "file://"+filepath.Join(n.target, "a.db")).CombinedOutput(); err != nil {
		t.Fatalf("litestream restore: %v\n%s", err, out)
	}
	var count int
	var check string
	db := open(t, to, "mode=ro")
	if err := db.QueryRow("SELECT count(*), (SELECT * FROM pragma_integrity_check) FROM t").Scan(&count, &check); err != nil || count != rows || check != "ok" {
		t.Errorf("litestream restored %d rows of %d, integrity_check %q: %v", count, rows, check, err)
	}
	v, err := backup.Verify(t.Context(), backup.Dir(n.target), "a.db")
	if err != nil || len(v.Problems) > 0 {
		t.Error(v.Problems, err)
	}
}
