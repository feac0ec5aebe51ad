// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/replica"
)

// buffer is written by a command while the test reads it.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// command runs a command line to its end.
func command(args ...string) (code int, out, errs string) {
	var stdout, stderr buffer
	code = run(context.Background(), args, &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// node runs a node until stop is called.
func node(t *testing.T, args ...string) (stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var stdout, stderr buffer
	code := make(chan int, 1)
	go func() { code <- run(ctx, append([]string{"run"}, args...), &stdout, &stderr) }()
	stop = sync.OnceValue(func() int {
		cancel()
		return <-code
	})
	t.Cleanup(func() {
		if c := stop(); c != exitOK {
			t.Errorf("%q ended with %d: %s", args, c, stderr.String())
		}
	})
	for !strings.Contains(stdout.String(), "listens at") {
		select {
		case c := <-code:
			t.Fatalf("%q ended with %d: %s", args, c, stderr.String())
		case <-time.After(5 * time.Millisecond):
		}
	}
	return stop
}

func status(t *testing.T, dir string) (s replica.Status) {
	t.Helper()
	code, out, errs := command("status", "-json", "-dir", dir)
	if code != exitOK {
		t.Fatal(errs)
	}
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// leader returns the directory of the node that leads, or "" without a leader.
func leader(t *testing.T, dirs map[string]string) string {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		for _, dir := range dirs {
			if status(t, dir).Leads {
				return dir
			}
		}
	}
	t.Fatal("there is no leader")
	return ""
}

// at runs a command on the node in dir(). It runs again if the command met an election, as any command may on a busy
// machine: nothing was done then.
func at(t *testing.T, dir func() string, args ...string) (code int, out, errs string) {
	t.Helper()
	eventually(t, args[0]+" meets no election", func() error {
		d := dir()
		code, out, errs = command(slices.Insert(slices.Clone(args), 1, "-dir", d)...)
		if strings.Contains(errs, "is not the leader") && (strings.Contains(errs, "there is none") || dir() != d) {
			return errors.New(errs)
		}
		return nil
	})
	return code, out, errs
}

// freeAddresses returns an address for each node.
func freeAddresses(t *testing.T, ids ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for i, address := range ringtest.FreeAddresses(t, ringtest.OwnHost(), len(ids)) {
		all[ids[i]] = address
	}
	return all
}

// TestCommands runs a cluster only by the command: nodes join and leave, the leadership
// moves, and a backup of one cluster is restored into another.
// Promise: replica/command-s-errors
// Promise: replica/ringside-replica-add
func TestCommands(t *testing.T) {
	// The address of a Unix socket has 108 bytes.
	place := filepath.Join(t.TempDir(), strings.Repeat("d", 120))
	if err := os.Mkdir(place, 0o700); err != nil {
		t.Fatal(err)
	}
	var peers []string
	dirs, addrs := map[string]string{}, freeAddresses(t, "a", "b", "c", "d", "z")
	for id := range addrs {
		if id < "d" {
			dirs[id] = filepath.Join(place, id)
			peers = append(peers, id+"="+addrs[id])
		}
	}
	for id, dir := range dirs {
		node(t, "-id", id, "-dir", dir, "-listen", addrs[id], "-peers", strings.Join(peers, ","), "-metrics", "", "-election", "3s")
	}
	lead := func() string { return leader(t, dirs) }
	if code, out, errs := at(t, lead, "status"); code != exitOK || !strings.Contains(out, "(leader)") || strings.Count(out, "member ") != 3 {
		t.Errorf("%d %s %s", code, out, errs)
	}

	if code, _, errs := at(t, lead, "add", "d", addrs["d"]); code != exitFailure || !strings.Contains(errs, `node "d" does not answer at `+addrs["d"]) || len(status(t, lead()).Members) != 3 {
		t.Errorf("a node that does not run was added: %d, %s", code, errs)
	}
	added := make(chan string, 1)
	go func() {
		defer close(added)
		code, _, errs := at(t, lead, "add", "-offline", "d", addrs["d"])
		added <- fmt.Sprint(code, errs)
	}()
	eventually(t, "a member that does not run yet is shown without a vote", func() error {
		_, out, errs := at(t, lead, "status")
		if !strings.Contains(out, "d at "+addrs["d"]+" (does not vote yet") || strings.Count(out, "not vote") != 1 {
			return errors.New(out + errs)
		}
		return nil
	})
	node(t, "-id", "d", "-dir", filepath.Join(place, "d"), "-listen", addrs["d"])
	if got := <-added; got != "0" {
		t.Errorf("add of a node that was started later: %s", got)
	}
	if _, out, _ := at(t, lead, "status"); strings.Contains(out, "not vote") {
		t.Error(out)
	}
	if code, _, errs := at(t, lead, "add", "e", addrs["d"]); code != exitFailure || !strings.Contains(errs, `is "d" and not "e"`) {
		t.Errorf("a node was added with another name: %d, %s", code, errs)
	}
	if code, _, errs := at(t, lead, "add", "d", addrs["d"]); code != exitOK {
		t.Error(errs)
	}
	if got := len(status(t, lead()).Members); got != 4 {
		t.Errorf("%d members", got)
	}
	if code, _, errs := at(t, lead, "verify"); code != exitOK {
		t.Error(errs)
	}
	for id, dir := range dirs {
		if dir != lead() {
			if code, _, errs := command("remove", "-dir", dir, "d"); code != exitFailure || !strings.Contains(errs, "is not the leader") {
				t.Errorf("a follower removed: %d, %s", code, errs)
			}
			eventually(t, "transfer", func() error { // raft gives up after the election timeout
				if code, _, errs := at(t, lead, "transfer", id); code != exitOK {
					return errors.New(errs)
				}
				return nil
			})
			break
		}
	}
	if code, _, errs := at(t, lead, "remove", "d"); code != exitOK {
		t.Error(errs)
	}
	backup := filepath.Join(place, "backup")
	if code, _, errs := at(t, lead, "backup", backup); code != exitOK {
		t.Error(errs)
	}
	if code, _, errs := at(t, lead, "backup", backup); code != exitFailure || !strings.Contains(errs, "is not empty") {
		t.Errorf("%d %s", code, errs)
	}
	other := filepath.Join(place, "z")
	stop := node(t, "-id", "z", "-dir", other, "-listen", addrs["z"], "-peers", "z="+addrs["z"])
	if code, _, errs := at(t, func() string { return leader(t, map[string]string{"z": other}) }, "restore", backup); code != exitOK {
		t.Error(errs)
	}
	if code := stop(); code != exitOK {
		t.Errorf("interrupted: %d", code)
	}
	if code, _, errs := command("status", "-dir", other); code != exitFailure || !strings.Contains(errs, "no node runs there") {
		t.Errorf("%d %s", code, errs)
	}
}

// envCommand turns the test binary into the command, with the arguments in it as JSON.
const envCommand = "RINGSIDE_TEST_COMMAND"

func TestMain(m *testing.M) {
	var args []string
	if json.Unmarshal([]byte(os.Getenv(envCommand)), &args) == nil {
		os.Args = append(os.Args[:1], args...)
		main()
	}
	os.Exit(m.Run())
}

// process starts a command in a process of its own.
func process(t *testing.T, args ...string) (*exec.Cmd, *buffer) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	list, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	var out buffer
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), envCommand+"="+string(list))
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, &out
}

// TestKilled kills commands, and the leader while it executes them, at growing times after their
// begin. The same command then succeeds, and all nodes have the same pages.
// Promise: replica/commands-ringside-replica
func TestKilled(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("nodes run on Linux only")
	}
	place := t.TempDir()
	dirs, addrs := map[string]string{}, freeAddresses(t, "a", "b", "c", "d", "source")
	var peers []string
	for id := range addrs {
		if dirs[id] = filepath.Join(place, id); id < "d" {
			peers = append(peers, id+"="+addrs[id])
		}
	}
	backup := makeBackup(t, dirs["source"], addrs["source"], filepath.Join(place, "backup"))
	delete(dirs, "source")

	nodes, outputs := map[string]*exec.Cmd{}, map[string]*buffer{}
	t.Cleanup(func() {
		for id, out := range outputs {
			t.Logf("node %s:\n%s", id, out)
		}
		for _, cmd := range nodes {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	kill := func(cmd *exec.Cmd) {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	run := func(id string) (*exec.Cmd, *buffer) {
		args := []string{"run", "-election", "400ms", "-id", id, "-dir", dirs[id], "-listen", addrs[id]}
		if id != "d" {
			args = append(args, "-peers", strings.Join(peers, ","))
		}
		return process(t, args...)
	}
	start := func(id string) {
		var out *buffer
		nodes[id], out = run(id)
		outputs[id] = out
		eventually(t, "node "+id+" listens", func() error {
			if !strings.Contains(out.String(), "listens at") {
				return errors.New(out.String())
			}
			return nil
		})
	}
	// run: killed while it begins, with an empty directory and with its own.
	for id := range dirs {
		for _, d := range []time.Duration{0, 5, 10, 20, 40} {
			cmd, _ := run(id)
			time.Sleep(d * time.Millisecond)
			kill(cmd)
		}
		start(id)
	}
	// succeed repeats a command on the node that leads.
	succeed := func(args ...string) {
		t.Helper()
		eventually(t, strings.Join(args, " "), func() error {
			code, _, errs := command(slices.Insert(slices.Clone(args), 1, "-dir", leader(t, dirs))...)
			if code != exitOK {
				return errors.New(errs)
			}
			return nil
		})
	}
	attempts := 0
	interrupt := func(finish func(attempt int), args func(attempt int) []string) {
		t.Helper()
		off := rand.IntN(2)
		for i, d := range []time.Duration{0, 2, 5, 10, 20, 40, 80} {
			for v, victim := range []string{"the command", "the leader"} {
				if !ringtest.Long() && (i+v+off)%2 == 0 { // before a merge one of them at a time
					continue
				}
				attempts++
				list := args(attempts)
				at := leader(t, dirs)
				cmd, _ := process(t, slices.Insert(list, 1, "-dir", at)...)
				time.Sleep(d * time.Millisecond)
				if victim == "the leader" {
					for id, dir := range dirs {
						if dir == at {
							kill(nodes[id])
							start(id)
						}
					}
				}
				kill(cmd)
				finish(attempts)
			}
		}
		succeed("verify")
	}
	count := func() int { return status(t, leader(t, dirs)).Databases }

	interrupt(func(int) {}, func(int) []string { return []string{"restore", backup} })
	succeed("restore", backup)
	if got := count(); got != 3 {
		t.Errorf("%d databases", got)
	}
	interrupt(func(int) {}, func(int) []string { return []string{"verify"} })
	to := func(attempt int) string { return filepath.Join(place, fmt.Sprint("backup", attempt)) }
	interrupt(func(attempt int) {
		// A backup without its list was interrupted, and is refused. The node may have completed it
		// before it noticed that the command was killed.
		eventually(t, "restore after an interrupted backup", func() error {
			code, _, errs := command("restore", "-dir", leader(t, dirs), to(attempt))
			_, err := os.Stat(filepath.Join(to(attempt), "backup.json"))
			switch {
			case code == exitOK && err != nil:
				t.Errorf("an interrupted backup was restored: %v", err)
			case code != exitOK && !strings.Contains(errs, "not a backup"):
				return fmt.Errorf("exit code %d: %s", code, errs)
			}
			return nil
		})
	}, func(attempt int) []string { return []string{"backup", to(attempt)} })
	succeed("backup", to(0))
	interrupt(func(int) { succeed("add", "d", addrs["d"]) }, func(attempt int) []string {
		if attempt%2 == 0 {
			return []string{"remove", "d"}
		}
		eventually(t, "d is removed", func() error {
			code, _, errs := command("remove", "-dir", leader(t, dirs), "d")
			if code != exitOK && !strings.Contains(errs, "is not a member") { // by the command that was killed
				return errors.New(errs)
			}
			return nil
		})
		return []string{"add", "d", addrs["d"]}
	})
	if s := status(t, leader(t, dirs)); len(s.Members) != 4 || s.Databases != 3 || len(s.Broken) > 0 {
		t.Errorf("%+v", s)
	}
	succeed("verify")
}

// makeBackup makes a backup of three databases with more than one part each.
func makeBackup(t *testing.T, dir, address, to string) string {
	t.Helper()
	n, err := replica.Open(replica.Options{ID: "source", Dir: dir, Listen: address, Peers: map[string]string{"source": address}})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, _, err := n.WaitLeader(ctx); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		err := n.Do(ctx, fmt.Sprintf("%d.db", i), func(tx *sql.Tx) error {
			_, err := tx.Exec("CREATE TABLE t(x); INSERT INTO t VALUES(randomblob(5000000))")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := n.Backup(ctx, to); err != nil {
		t.Fatal(err)
	}
	return to
}

// eventually repeats what fails during elections.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// TestCommandLine: errors of the command line name the mistake and have their own exit
// code.
// Promise: replica/command-s-errors
func TestCommandLine(t *testing.T) {
	dir := t.TempDir()
	if stop := node(t, "-id", "a", "-dir", filepath.Join(dir, "a"), "-listen", "127.0.0.1:0"); stop() != exitOK {
		t.Fatal("a node did not run")
	}
	local := "run -id a -dir " + filepath.Join(dir, "other") + " -listen 127.0.0.1:0"
	for line, want := range map[string]string{
		"":                         "Usage",
		"nonsense":                 `unknown command "nonsense"`,
		"status":                   "-dir is missing",
		"add -dir /x a":            `add: got "a", want ID ADDRESS`,
		"backup -dir /x":           `backup: got "", want a directory`,
		"status -dir /x a":         `status: got "a", want no arguments`,
		"transfer -dir /x a b":     `transfer: got "a b", want at most one ID`,
		"status -dir /x -nonsense": "-nonsense",
		"run -id a -peers b":       `"b" is not ID=ADDRESS`,
		"run -peers a=b:1,a=c:1":   `-peers: "a" is named twice`,
		"run -cert x":              "-key is missing: TLS needs -cert, -key and -ca",
		"run -key x -ca x":         "-cert is missing: TLS needs -cert, -key and -ca",
		"run -cert x -key x":       "-ca is missing: TLS needs -cert, -key and -ca",
		"run -id a extra":          `unexpected argument "extra"`,
		"run":                      "run: -id is empty",
		"run -id a":                "run: -dir is empty",
		"run -id a -dir " + dir:    "run: -listen is empty: use host:port",
		"run -id a -dir " + dir + "/other -listen nonsense": "run: -listen: listen tcp: address nonsense: missing port",
		local + " -election 1ms":                            "run: -election: 1ms is less than 50 ms",
		local + " -election 1":                              `invalid value "1" for flag -election`,
		local + " -peers b=b:1":                             `run: -peers does not have this node, "a"`,
		local + " -metrics bad":                             "run: -metrics: listen tcp: address bad: missing port",
		local + " -backup ftp://x":                          `run: -backup: "ftp://x" is neither a directory nor s3://BUCKET/PREFIX`,
		local + " -backup x -backup-keep -1s":               "run: -backup-keep: -1s is not positive",
		"restore -dir /x -before yesterday y":               `-before: "yesterday" is neither a time`,
		"restore -dir /x -before= y":                        `-before: "" is neither a time`,
		local + " -max-transaction 1000000000":              "run: -max-transaction: 1000000000 is not between",
		"run -id a -dir " + dir + " -listen :0":             "set -cert, -key and -ca, or -plain-text to allow that",
		"run -id b -dir " + dir + "/a -listen 127.0.0.1:0":  `belongs to node "a", and -id is "b"`,
	} {
		code, _, errs := command(strings.Fields(line)...)
		if code != exitUsage || !strings.Contains(errs, want) || strings.Contains(errs, "Options.") {
			t.Errorf("%q: %d, %s", line, code, errs)
		}
	}
	for _, args := range [][]string{{"restore", "-dir", "/x", ""}, {"backup", "-dir", "/x", ""}, {"import", "-dir", "/x", "name", ""}} {
		if code, _, errs := command(args...); code != exitUsage || !strings.Contains(errs, ", want ") {
			t.Errorf("%q: %d, %s", args, code, errs)
		}
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, line := range []string{"-h", "help", "run -h", "status -h", "version", "--version"} {
		if code, out, errs := command(strings.Fields(line)...); code != exitOK || out == "" || errs != "" {
			t.Errorf("%q: %d, %q, %q", line, code, out, errs)
		}
		var errs buffer
		if code := run(t.Context(), strings.Fields(line), full, &errs); code != exitFailure || !strings.Contains(errs.String(), "write /dev/full") {
			t.Errorf("%q to a full disk: %d, %q", line, code, errs.String())
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, flag := range []string{"-listen", "-metrics"} { // another program has the port
		args := strings.Fields("run -id a -dir " + filepath.Join(dir, "a") + " -listen 127.0.0.1:0 " + flag + " " + l.Addr().String())
		if code, _, errs := command(args...); code != exitFailure || !strings.Contains(errs, flag+": listen tcp "+l.Addr().String()) {
			t.Errorf("%d %s", code, errs)
		}
	}
}
