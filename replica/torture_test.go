// SPDX-License-Identifier: MIT

package replica

import (
	"bytes"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"
	sqlite3_wasm "github.com/ncruces/go-sqlite3-wasm/v6"
	"github.com/ncruces/go-sqlite3/vfs"
)

// programs are the processes of mptest or speedtest1, SQLite's programs that are compiled into the
// driver. The processes are goroutines.
type programs struct {
	t       *testing.T
	dir     string // has the scripts
	running sync.WaitGroup

	mu     sync.Mutex
	output []string // lines: the newest, and those with errors
	failed []any
	result string // of the first process
}

// runProgram runs a program with its arguments.
func runProgram(t *testing.T, args ...string) {
	t.Helper()
	p := &programs{t: t, result: "no result"}
	if args[0] == "mptest" {
		out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/ncruces/go-sqlite3").Output()
		p.dir = filepath.Join(strings.TrimSpace(string(out)), "vfs/tests/mptest/testdata")
		if _, serr := os.Stat(p.dir); err != nil || serr != nil {
			t.Skipf("needs the go command and the driver's source: %v, %v", err, serr)
		}
	}
	p.start(args)
	p.running.Wait() // for the clients too
	if p.result != "result 0" {
		p.fail(p.result)
	}
	if len(p.failed) > 0 {
		t.Fatalf("%v: %v\n%s", args, p.failed, strings.Join(p.output, "\n"))
	}
}

func (p *programs) fail(why any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = append(p.failed, why)
}

// programEnv is the system of a process: it has the functions of C's library that the driver has for
// its own tests only.
type programEnv struct {
	sqlite3_wasm.Xenv
	p     *programs
	line  []byte
	files []*os.File
}

func (e *programEnv) memory() []byte { return *e.Xmemory().Slice() }

func (e *programEnv) text(at int32) string {
	s, _, _ := bytes.Cut(e.memory()[at:], []byte{0})
	return string(s)
}

// start runs a process.
func (p *programs) start(args []string) {
	p.running.Go(func() {
		c, err := sqlite3.OpenContext(p.t.Context(), ":memory:")
		if err != nil {
			p.fail(err)
			return
		}
		// The connection's module has the programs too.
		private := func(v reflect.Value) reflect.Value { return reflect.NewAt(v.Type(), v.Addr().UnsafePointer()).Elem() }
		wrapper := private(reflect.ValueOf(c).Elem().FieldByName("wrp"))
		defer wrapper.Interface().(io.Closer).Close() // a process that crashes ends here too, and its files are closed
		m := wrapper.Elem().FieldByName("Module").Interface().(*sqlite3_wasm.Module)
		env := private(reflect.ValueOf(m).Elem().FieldByName("_env"))
		e := &programEnv{Xenv: env.Interface().(sqlite3_wasm.Xenv), p: p}
		env.Set(reflect.ValueOf(e))

		argv := m.Xsqlite3_malloc64(int64(4 * len(args)))
		for i, a := range args {
			at := m.Xsqlite3_malloc64(int64(len(a) + 1))
			copy(e.memory()[at:], a+"\x00")
			binary.LittleEndian.PutUint32(e.memory()[int(argv)+4*i:], uint32(at))
		}
		program := m.Xmain_mptest
		if args[0] == "speedtest1" {
			program = m.Xmain_speedtest1
		}
		code := program(int32(len(args)), argv)
		if !slices.Contains(args, "--client") {
			p.result = fmt.Sprintf("result %d", code)
		}
	})
}

// Xexit ends a process. The first process of mptest counts the failures of the others.
func (e *programEnv) Xexit(int32) { runtime.Goexit() }

// Xsystem starts a process in the background.
func (e *programEnv) Xsystem(command int32) int32 {
	args := strings.Fields(e.text(command))
	for i := range args {
		args[i] = strings.Trim(args[i], `"`)
	}
	if len(args) < 2 || args[0] != "mptest" || args[len(args)-1] != "&" {
		e.p.fail(fmt.Sprintf("unknown command %q", args))
		return -1
	}
	e.p.start(args[:len(args)-1])
	return 0
}

func (e *programEnv) Xfwrite(at, size, count, _ int32) int32 {
	e.line = append(e.line, e.memory()[at:][:size*count]...)
	for {
		line, rest, ok := bytes.Cut(e.line, []byte("\n"))
		if !ok {
			return count
		}
		p := e.p
		p.mu.Lock()
		if n := len(p.output); n > 30 && !strings.Contains(strings.ToLower(p.output[n-30]), "error") {
			p.output = slices.Delete(p.output, n-30, n-29)
		}
		p.output = append(p.output, string(line))
		p.mu.Unlock()
		e.line = rest
	}
}

func (e *programEnv) Xfflush(int32) int32 { return 0 }

func (e *programEnv) Xfopen(name, _ int32) int32 {
	f, err := os.Open(filepath.Join(e.p.dir, e.text(name)))
	if err != nil {
		return 0
	}
	e.files = append(e.files, f)
	return int32(len(e.files))
}

func (e *programEnv) Xfclose(f int32) int32 {
	_ = e.files[f-1].Close()
	return 0
}

func (e *programEnv) Xfread(at, width, count, f int32) int32 {
	p := e.memory()[at:][:width*count]
	n, _ := io.ReadFull(e.files[f-1], p)
	again := []byte("--source crash02.subtest\n") // of TestMPTestCrash, nine times
	for k := bytes.Count(p[:n], again); k > size(2, 9); k-- {
		copy(p[bytes.Index(p[:n], again):], bytes.Repeat([]byte(" "), len(again)-1))
	}
	return int32(n) / width
}

func (e *programEnv) Xfseek(f, offset, whence int32) int32 {
	_, err := e.files[f-1].Seek(int64(offset), int(whence))
	if err != nil {
		return -1
	}
	return 0
}

func (e *programEnv) Xftell(f int32) int32 {
	n, _ := e.files[f-1].Seek(0, io.SeekCurrent)
	return int32(n)
}

// contents returns the schema and the rows of a database. It leaves out mptest's own tables, which
// have times.
func contents(t *testing.T, db *sql.DB) map[string]string {
	t.Helper()
	all := map[string]string{"schema": strings.Join(allRows(t, db, "SELECT type, name, tbl_name, sql FROM sqlite_schema"), "\n")}
	for _, name := range allRows(t, db, "SELECT name FROM sqlite_schema WHERE type='table' AND rootpage>0") {
		if !slices.Contains([]string{"task", "counters", "client"}, name) {
			rows := allRows(t, db, `SELECT * FROM "`+name+`"`)
			all[name] = fmt.Sprintf("%d rows, %x", len(rows), sha256.Sum256([]byte(strings.Join(rows, "\n"))))
		}
	}
	return all
}

// allRows returns the rows of a query, sorted.
func allRows(t *testing.T, db *sql.DB, query string) (all []string) {
	t.Helper()
	r, err := db.QueryContext(t.Context(), query)
	must(t, err)
	defer r.Close()
	names, err := r.Columns()
	must(t, err)
	for r.Next() {
		row, dest := make([]sql.RawBytes, len(names)), make([]any, len(names))
		for i := range row {
			dest[i] = &row[i]
		}
		must(t, r.Scan(dest...))
		all = append(all, string(bytes.Join(slices.Collect(func(yield func([]byte) bool) {
			for _, v := range row {
				if !yield(v) {
					return
				}
			}
		}), []byte("|"))))
	}
	must(t, r.Err())
	slices.Sort(all)
	return all
}

// compare compares a database on all nodes, and with a file in which the same was done if there is one.
func (c *cluster) compare(name, plain string) {
	c.t.Helper()
	t := c.t.(*testing.T)
	leader := c.leader()
	same := open(t, leader, name)
	if plain != "" {
		file, err := sql.Open("sqlite3", "file:"+plain)
		must(t, err)
		defer file.Close()
		same = file
	}
	want := contents(t, same)
	if len(want) < 2 {
		t.Fatalf("there is only %v", want)
	}
	for _, n := range c.all() {
		caughtUp(t, leader, name, n)
		db := open(t, n, name, Stale(-1))
		if got := contents(t, db); !maps.Equal(got, want) {
			t.Errorf("node %s:\n%v\ninstead of:\n%v", n.ID(), got, want)
		}
		if got := value(t, db, "PRAGMA integrity_check"); got != "ok" {
			t.Errorf("node %s: %s", n.ID(), got)
		}
	}
	c.judge()
}

// syncVFS is the VFS of a node for programs that leave PRAGMA synchronous as it is. Commits are
// synced nevertheless, at the moment at which SQLite does that for the connections of Node.Open.
type syncVFS struct{ *nodeVFS }

func (v syncVFS) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	f, out, err := v.nodeVFS.OpenFilename(name, flags)
	if w, ok := f.(*walFile); ok {
		f = &syncedWAL{walFile: w}
	}
	return f, out, err
}

type syncedWAL struct {
	*walFile
	header   int64 // offset of the header whose page is written next
	replaced int64 // offset of the first frame whose page was replaced in this transaction; 0: none
	again    bool  // the headers from there on are written again
}

func (f *syncedWAL) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.walFile.WriteAt(p, off)
	if err != nil || off < walHeaderSize {
		return n, err
	}
	done := false // this is the last write of a transaction
	if len(p) == frameHeaderSize {
		if off <= f.replaced && !f.again {
			f.replaced = 0 // was rolled back
		}
		f.header = off
		done = f.again && off == f.last
	} else if at := off - frameHeaderSize; at != f.header { // a replaced page has no new header
		if f.replaced == 0 || at < f.replaced {
			f.replaced = at
		}
	} else {
		f.header = 0
		f.again = at == f.last && f.replaced != 0
		done = at == f.last && f.replaced == 0
	}
	if done {
		f.header, f.replaced, f.again = 0, 0, false
		err = f.Sync(vfs.SYNC_FULL)
	}
	return n, err
}

// sqliteUnderRace reports whether the race detector watches SQLite's own code: in make test it does not.
func sqliteUnderRace() bool {
	b, _ := debug.ReadBuildInfo()
	return b != nil && slices.Contains(b.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) &&
		!slices.ContainsFunc(b.Settings, func(s debug.BuildSetting) bool {
			return s.Key == "-gcflags" && strings.Contains(s.Value, "go-sqlite3-wasm/...=-race=false")
		})
}

// TestMPTest runs a script of SQLite's mptest on the leader: processes write at the same time.
// Promise: replica/sqlite-s-mptest
func TestMPTest(t *testing.T) {
	if *long == 0 {
		t.Skip("TestMPTestCrash writes as much from as many processes: only with -long")
	}
	runOnLeader(t, "mptest", [][]string{{"multiwrite01.test", "--sync", "--timeout", "120000"}})
}

// TestMPTestCrash runs the script in which processes crash in transactions.
// Promise: replica/sqlite-s-mptest
func TestMPTestCrash(t *testing.T) {
	runOnLeader(t, "mptest", [][]string{{"crash01.test", "--sync", "--timeout", "120000"}})
}

// TestSpeedtest1 runs SQLite's speedtest1 on the leader.
// Promise: replica/sqlite-s-mptest
func TestSpeedtest1(t *testing.T) {
	var runs [][]string
	for _, set := range []string{"main", "orm", "json", "star"} {
		runs = append(runs, []string{"--size", fmt.Sprint(size(1, 5)), "--testset", set})
	}
	runOnLeader(t, "speedtest1", runs)
}

// runOnLeader runs a program on databases of the leader and on files, and compares them.
func runOnLeader(t *testing.T, program string, runs [][]string) {
	if sqliteUnderRace() {
		t.Skip("takes minutes with the race detector in SQLite's own code")
	}
	// The programs do not repeat what an election interrupts.
	c := newCluster(t, 3, Options{Election: 15 * time.Second})
	leader := c.leader()
	name := leader.catalog.vfsName + "-sync"
	vfs.Register(name, syncVFS{vfs.Find(leader.catalog.vfsName).(*nodeVFS)})
	defer vfs.Unregister(name)
	for i, args := range runs {
		name, plain := fmt.Sprintf("%d.db", i), filepath.Join(t.TempDir(), "plain")
		execAll(t, open(t, leader, name), "PRAGMA user_version=1")
		db, err := leader.catalog.named(name)
		must(t, err)
		leader.sessions.connecting.Store("program", &conn{db: db, writer: true})
		uri := db.uri + "?vfs=" + leader.catalog.vfsName + "-sync&" + paramConn + "=program&" + paramRole + "=" + roleWriter
		before := leader.metrics.Commits.Load()
		runProgram(t, append([]string{program, uri}, args...)...)
		t.Logf("%v: %d commits", args, leader.metrics.Commits.Load()-before)
		if slices.Contains(args, "json") {
			plain = "" // its rows are random, and each header of a WAL takes random numbers too
		} else {
			runProgram(t, append([]string{program, plain}, args...)...)
		}
		c.compare(name, plain)
	}
}
