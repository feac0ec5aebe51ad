// SPDX-License-Identifier: MIT

package replica

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/ncruces/go-sqlite3"

	"github.com/ringside-io/ringside/appendlog"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/replica/internal/raftlog"
)

var (
	seeds     = flag.Int("seeds", 1, "how many seeds TestChaos plays")
	seed      = flag.Uint64("seed", 0, "the first of them")
	duration  = flag.Duration("duration", 3*time.Second, "how long each is played")
	snapshots = flag.Bool("snapshots", false, "snapshots, logs that are cut and new disks in all seeds of TestChaos, not in half of them")
)

// envNode holds the options of a node. It turns the test binary into a child that is this
// node.
const envNode = "RINGSIDE_TEST_REPLICA"

// childOptions are the options that a parent passes to a node.
type childOptions struct {
	ID, Dir, Listen string
	Advertise       string
	Peers           map[string]string
	Bug             testBug
	Shadow          string // keeps the state of the last syncs
	Forward         bool
	Snapshots       bool   // many
	Backup          string // the target; "" for none
	Election        time.Duration
}

// continuous is the continuous backup of the nodes: testdata/backup sets it, because this module does not require the one of
// package backup. Without it the nodes have none.
var continuous struct {
	// follow begins the backup of a node. sync returns when the target has all commits.
	follow func(n *Node, target string) (sync func(context.Context) error, stop func() error, err error)
	// judge compares a database of the target with files, and returns what is wrong.
	judge func(t testing.TB, target, name string, files []string) (wrong []string)
}

func TestMain(m *testing.M) {
	if o := os.Getenv(envNode); o != "" {
		if err := child(o); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	_ = flag.Set("test.parallel", "4") // clusters wait as long as they compute
	os.Exit(m.Run())
}

// command is a request of a client to a node, a line of JSON on the node's standard input.
// The answer, if any, is a line on its standard output.
type command struct {
	N    int    `json:"n"`
	Kind string `json:"kind"`
	DB   string `json:"db"`
	Key  int    `json:"key"`
	From int    `json:"from"`
	Val  int    `json:"val"`
	Text string `json:"text,omitempty"`
}

type reply struct {
	N      int    `json:"n"`
	Err    string `json:"err,omitempty"` // "no": nothing happened; "uncertain"; any other text is a failure of the test
	Val    int    `json:"val"`
	From   int    `json:"from,omitempty"`
	Text   string `json:"text,omitempty"`
	Detail string `json:"detail,omitempty"`
}

// child runs a node until its standard input ends.
func child(env string) error {
	var o childOptions
	if err := json.Unmarshal([]byte(env), &o); err != nil {
		return err
	}
	signal.Ignore(syscall.SIGXFSZ) // see badDisk.full
	var every time.Duration
	if o.Snapshots {
		every = 200 * time.Millisecond
	}
	var late time.Duration
	if o.ID == "a" { // its transactions are deferred until they are needed
		late = time.Hour
	}
	d := &badDisk{dir: o.Dir, shadow: o.Shadow, synced: make(map[string]int)}
	n, err := openNode(Options{ID: o.ID, disk: disk{around: d.sync, written: d.written}, snapshotEvery: every, flushAfter: late, Forward: o.Forward, Dir: o.Dir, Listen: o.Listen, Advertise: o.Advertise, Peers: o.Peers, Election: o.Election, SnapshotEntries: 64,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})), bug: o.Bug})
	if err != nil {
		return err
	}
	backedUp, unfollow := func(context.Context) error { return nil }, func() error { return nil }
	if o.Backup != "" {
		if backedUp, unfollow, err = continuous.follow(n, o.Backup); err != nil {
			return err
		}
	}
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	var over sync.WaitGroup
	var busy atomic.Int64
	pools := make(map[string]*sql.DB)
	in := json.NewDecoder(bufio.NewReader(os.Stdin))
	for {
		var c command
		if err := in.Decode(&c); err != nil {
			break
		}
		db := pools[c.DB]
		if db == nil && c.DB != "" {
			if db, err = n.Open(c.DB); err != nil {
				return err
			}
			pools[c.DB] = db
		}
		if c.Kind == "disk" { // in order
			d.set(c.Val)
			continue
		}
		over.Go(func() {
			if c.Kind == "snapshot" { // a full disk, or a database that is being repaired, has none
				_ = n.raft.Snapshot().Error()
				return
			}
			busy.Add(1)
			defer busy.Add(-1)
			for c.Kind == "idle" && busy.Load() > 1 {
				time.Sleep(time.Millisecond)
			}
			r := reply{N: c.N, Err: "no"}
			if c.Kind != "backed up" {
				r = n.obey(db, c)
			} else if n.Status().Leads {
				r = n.askBackup(c, backedUp)
			}
			mu.Lock()
			defer mu.Unlock()
			_ = out.Encode(r)
		})
	}
	over.Wait()
	for _, db := range pools {
		db.Close()
	}
	return errors.Join(unfollow(), n.Close())
}

// askBackup waits until the target has all commits.
func (n *Node) askBackup(c command, backedUp func(context.Context) error) reply {
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second)
	defer cancel()
	r := reply{N: c.N}
	if err := backedUp(ctx); err != nil {
		r.Err, r.Detail = "no", err.Error()
	}
	return r
}

func (n *Node) obey(db *sql.DB, c command) reply {
	limit := 10 * time.Second
	if c.Kind == "check" { // of hundreds of databases, on a busy machine
		limit = patience / 2
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	r := reply{N: c.N}
	var err error
	switch c.Kind {
	case "setup":
		var tx *sql.Tx
		if tx, err = db.BeginTx(ctx, nil); err == nil {
			_, err = tx.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS r(k INTEGER PRIMARY KEY, v INTEGER, pad); CREATE TABLE IF NOT EXISTS account(id INTEGER PRIMARY KEY, n INTEGER); CREATE TABLE IF NOT EXISTS history(a, b, n); CREATE TABLE IF NOT EXISTS list(n INTEGER PRIMARY KEY, k, v UNIQUE); CREATE TABLE IF NOT EXISTS outbox(id PRIMARY KEY, n); CREATE TABLE IF NOT EXISTS inbox(id PRIMARY KEY, n); CREATE TABLE IF NOT EXISTS purse(n)")
			if err == nil {
				_, err = tx.ExecContext(ctx, "INSERT INTO purse SELECT 1000 WHERE NOT EXISTS(SELECT 1 FROM purse)")
			}
			for i := 0; i < 4 && err == nil; i++ {
				_, err = tx.ExecContext(ctx, "INSERT OR IGNORE INTO account VALUES(?, 100)", i)
			}
			if err == nil {
				err = tx.Commit()
			} else {
				_ = tx.Rollback()
			}
		}
	case "read":
		err = db.QueryRowContext(ctx, "SELECT coalesce((SELECT v FROM r WHERE k=?), 0)", c.Key).Scan(&r.Val)
	case "write":
		_, err = db.ExecContext(ctx, "INSERT INTO r VALUES(?1, ?2, randomblob(?2%9000)) ON CONFLICT(k) DO UPDATE SET v=excluded.v, pad=excluded.pad", c.Key, c.Val)
	case "add": // reads and writes in one transaction; the answer is the value before
		err = db.QueryRowContext(ctx, "INSERT INTO r VALUES(?1, ?2, NULL) ON CONFLICT(k) DO UPDATE SET v=v+?2 RETURNING v-?2", c.Key, c.Val).Scan(&r.Val)
	case "transfer":
		var tx *sql.Tx
		if tx, err = db.BeginTx(ctx, nil); err == nil {
			for _, q := range []struct {
				sql  string
				args []any
			}{
				{"UPDATE account SET n=n-? WHERE id=?", []any{c.Val, c.From}},
				{"UPDATE account SET n=n+? WHERE id=?", []any{c.Val, c.Key}},
				{"INSERT INTO history VALUES(?, ?, ?)", []any{c.From, c.Key, c.Val}},
			} {
				if err == nil {
					_, err = tx.ExecContext(ctx, q.sql, q.args...)
				}
			}
			if err == nil {
				err = tx.Commit()
			} else {
				_ = tx.Rollback()
			}
		}
	case "append":
		_, err = db.ExecContext(ctx, "INSERT INTO list(k, v) VALUES(?, ?)", c.Key, c.Val)
	case "fill":
		_, err = db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS big(k PRIMARY KEY, v)")
		if err == nil {
			_, err = db.ExecContext(ctx, "INSERT OR IGNORE INTO big VALUES(?, randomblob(?))", c.Key, c.Val)
		}
	case "list":
		err = db.QueryRowContext(ctx, "SELECT coalesce(group_concat(v), '') FROM (SELECT v FROM list WHERE k=? ORDER BY n)", c.Key).Scan(&r.Text)
	case "send": // the first half of a transfer to another database
		err = atomically(ctx, db, fmt.Sprintf("UPDATE purse SET n=n-%d; INSERT INTO outbox VALUES(%d, %[1]d)", c.Key, c.Val))
	case "take": // the second half, which may be repeated
		err = atomically(ctx, db, fmt.Sprintf("UPDATE purse SET n=n+%d WHERE NOT EXISTS(SELECT 1 FROM inbox WHERE id=%d); INSERT OR IGNORE INTO inbox VALUES(%[2]d, %[1]d)", c.Key, c.Val))
	case "books":
		err = db.QueryRowContext(ctx, "SELECT (SELECT n FROM purse)||';'||(SELECT coalesce(group_concat(id||':'||n), '') FROM outbox)||';'||(SELECT coalesce(group_concat(id||':'||n), '') FROM inbox)||';'||(SELECT coalesce(group_concat(v), '') FROM list)").Scan(&r.Text)
	case "total":
		err = db.QueryRowContext(ctx, "SELECT sum(n) FROM account").Scan(&r.Val)
	case "leave", "join":
		id, address, _ := strings.Cut(c.Text, " ")
		if c.Kind == "join" {
			err = n.AddMember(ctx, id, address)
		} else {
			err = n.RemoveMember(ctx, id)
		}
		if err != nil { // the nemesis tries again
			r.Err, r.Detail = "no", err.Error()
			return r
		}
	case "applied":
		if s := n.Status(); len(s.Broken) > 0 || !n.progress.recovered.Load() {
			r.Err, r.Detail = "no", fmt.Sprintf("not whole: %v", s.Broken)
			return r
		}
		r.Val, r.From = int(n.progress.applied.Load()), int(n.metrics.Fetched.Load())
	case "check":
		s := n.Status()
		if !n.progress.recovered.Load() || len(s.Broken) > 0 {
			r.Err, r.Detail = "no", fmt.Sprintf("not whole: %v, recovered %v", s.Broken, n.progress.recovered.Load())
			return r
		}
		if n.metrics.Broken.Load() > 0 {
			r.Val = 1
		}
		r.Text = fmt.Sprintf("%s: snapshot at %s of %d, %d fetched", s.ID, n.raft.Stats()["last_snapshot_index"], s.LastEntry, n.metrics.Fetched.Load())
		if s.Leads {
			if err = n.Verify(ctx); err != nil && !errors.Is(err, ErrDiffer) {
				r.Err, r.Detail = "no", err.Error()
				return r
			}
		} else {
			r.Err = "no"
			return r
		}
	}
	switch e := (*NotLeaderError)(nil); {
	case err == nil:
	case errors.Is(err, ErrUncertain):
		r.Err, r.Detail = "uncertain", err.Error()
	case errors.As(err, &e), errors.Is(err, ErrConflict), errors.Is(err, sqlite3.BUSY), errors.Is(err, os.ErrNotExist), errors.Is(err, errRecovering),
		errors.Is(err, syscall.EIO), errors.Is(err, syscall.EFBIG): // of badDisk
		r.Err, r.Detail = "no", err.Error()
	default:
		f := (*forwardedError)(nil) // it has only the text of the leader's errno
		full := errors.As(err, &f) && (strings.HasSuffix(f.text, syscall.EIO.Error()) || strings.HasSuffix(f.text, syscall.EFBIG.Error()))
		if b := (*BrokenError)(nil); errors.As(err, &b) || full {
			r.Err, r.Detail = "no", err.Error()
			break
		}
		r.Err, r.Detail = "failed", err.Error()
		if e := (*sqlite3.Error)(nil); errors.As(err, &e) {
			r.Detail += fmt.Sprintf(" (SQLite's code %d)", e.ExtendedCode())
		}
	}
	return r
}

// States of a badDisk.
const (
	diskGood = iota
	diskSyncFails
	diskFull
)

// badDisk is the disk below a node. It keeps the content at the last sync, so that the
// power can be cut, makes syncs fail, and is full on demand.
type badDisk struct {
	dir, shadow string
	failing     atomic.Bool
	mu          sync.Mutex
	number      int
	synced      map[string]int // the number of the sync from which the shadow is
	log         *os.File
}

func (d *badDisk) set(state int) {
	d.failing.Store(state == diskSyncFails)
	// A limit on the file's size replaces a full disk: each write beyond it fails, also
	// through a ring.
	limit := syscall.Rlimit{Cur: math.MaxUint64, Max: math.MaxUint64}
	if state == diskFull {
		limit.Cur = 8192
	}
	_ = syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit)
}

// sync copies a file's content when its sync begins, and makes the copy the durable state
// when the sync has succeeded.
func (d *badDisk) sync(path string, f func() error) error {
	if d.failing.Load() {
		return syscall.EIO
	}
	rel, err := filepath.Rel(d.dir, path)
	info, serr := os.Stat(path)
	if err == nil && serr == nil && info.IsDir() {
		gone, err := d.removed(path)
		if err != nil {
			return err
		}
		if err := f(); err != nil {
			return err
		}
		return d.forget(gone)
	}
	if err != nil || serr != nil || !strings.HasPrefix(rel, "data/") || strings.HasSuffix(rel, ".new") {
		return f()
	}
	d.mu.Lock()
	d.number++
	number := d.number
	p, err := os.ReadFile(path)
	d.mu.Unlock()
	if err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.synced[path] > number {
		return nil // a later sync was faster
	}
	d.synced[path] = number
	name := d.shadowOf(path)
	if err := os.WriteFile(name+".tmp", append(inode(info), p...), 0o600); err != nil {
		return err
	}
	return os.Rename(name+".tmp", name)
}

// removed returns the files of a directory that were synced and have been removed since, with
// the numbers of their syncs.
func (d *badDisk) removed(dir string) (map[string]int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	shadows, err := filepath.Glob(d.shadowOf(dir) + "_*")
	gone := make(map[string]int)
	for _, name := range shadows {
		path := filepath.Join(dir, strings.TrimPrefix(name, d.shadowOf(dir)+"_"))
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			gone[path] = d.synced[path]
		}
	}
	return gone, err
}

// forget drops what was synced of files whose removal is durable.
func (d *badDisk) forget(gone map[string]int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for path, number := range gone {
		if d.synced[path] != number {
			continue // there is a new file of that name
		}
		if err := os.Remove(d.shadowOf(path)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// shadowOf returns the file that keeps what was synced of a file: its inode, 8 bytes, and its
// content.
func (d *badDisk) shadowOf(path string) string {
	rel, _ := filepath.Rel(d.dir, path)
	return filepath.Join(d.shadow, strings.ReplaceAll(rel, "/", "_"))
}

func inode(info os.FileInfo) []byte {
	return binary.LittleEndian.AppendUint64(nil, info.Sys().(*syscall.Stat_t).Ino)
}

// written records up to where raft's log is durable.
func (d *badDisk) written(g appendlog.SegmentInfo) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.log == nil {
		var err error
		if d.log, err = os.OpenFile(filepath.Join(d.shadow, "log"), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
			return err
		}
	}
	// The log knows that its write was durable, and may record that in the file.
	_, err := d.log.WriteAt(fmt.Appendf(nil, "%020d %020d\n", g.Index, g.Size), 0)
	if err == nil && d.failing.Load() {
		err = syscall.EIO
	}
	return err
}

// cutPower gives the files of a dead node the content that a disk may have after a power
// cut: of the unsynced data, any sectors of 512 bytes or none; without r, none.
func cutPower(r *rand.Rand, dir, shadow string) error {
	const sector = 512
	all := r == nil || r.IntN(3) == 0 // no unsynced data is there
	mix := func(now, old []byte) []byte {
		if all {
			return old
		}
		size := len(old)
		if r.IntN(2) == 0 {
			size = len(now)
		}
		out := make([]byte, size)
		for at := 0; at < size; at += sector {
			src := now
			if r.IntN(2) == 0 {
				src = old
			}
			if at < len(src) {
				copy(out[at:min(at+sector, size)], src[at:])
			}
		}
		return out
	}
	err := filepath.WalkDir(filepath.Join(dir, "data"), func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if strings.HasSuffix(path, "-shm") || strings.HasSuffix(path, ".new") {
			return os.Remove(path)
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		now, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		old, err := os.ReadFile(filepath.Join(shadow, strings.ReplaceAll(rel, "/", "_")))
		if errors.Is(err, os.ErrNotExist) && strings.HasSuffix(path, "-wal") && (all || r.IntN(2) == 0) {
			return os.Remove(path) // the name was never synced
		}
		if errors.Is(err, os.ErrNotExist) && !strings.HasSuffix(path, "-wal") {
			// A database gets its name when its content has been synced.
			if all || r.IntN(2) == 0 {
				return os.Remove(path)
			}
			return nil
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		info, ierr := e.Info()
		if ierr != nil {
			return ierr
		}
		if len(old) >= 8 {
			replaced := string(old[:8]) != string(inode(info))
			if old = old[8:]; replaced && !strings.HasSuffix(path, "-wal") {
				// Another file has got the name, and its content was synced before.
				if all || r.IntN(2) == 0 {
					return os.WriteFile(path, old, 0o600)
				}
				return nil
			}
		}
		return os.WriteFile(path, mix(now, old), 0o600)
	})
	if err != nil {
		return err
	}
	p, err := os.ReadFile(filepath.Join(shadow, "log"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var index uint64
	var size int64
	if _, err := fmt.Sscanf(string(p), "%d %d", &index, &size); err != nil {
		return err
	}
	segments, err := filepath.Glob(filepath.Join(dir, "raft", "*.seg"))
	if err != nil || len(segments) == 0 {
		return errors.Join(err, errors.New("raft's log has no segments"))
	}
	slices.Sort(segments)
	for _, name := range segments {
		n, err := strconv.ParseUint(strings.TrimSuffix(filepath.Base(name), ".seg"), 16, 64)
		if err != nil || n != index {
			continue
		}
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		kept, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		info, err := f.Stat()
		for at := size; err == nil && at < min(info.Size(), size+1<<20); {
			end := min((at/sector+1)*sector, info.Size())
			if all || r.IntN(2) == 0 {
				_, err = f.WriteAt(make([]byte, end-at), at)
			}
			at = end
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
		// The node may have been killed between a durable write and its record of the
		// write. The log knows its end, so no power cut leaves such a state.
		store, err := raftlog.Open(filepath.Join(dir, "raft"), raftlog.Options{})
		if err != nil {
			return os.WriteFile(name, kept, 0o600)
		}
		if err := store.Close(); err != nil {
			return err
		}
	}
	return nil
}

// process is a node in a child process.
type process struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	mu   sync.Mutex
	wait map[int]chan reply
	gone chan struct{}
	log  *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// spawn starts a node. Its clock is ahead by skew, which is hours if time namespaces can be
// made.
func spawn(t testing.TB, o childOptions, skew time.Duration) *process {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command(self)
	if skew != 0 {
		cmd = exec.Command("unshare", "--time", fmt.Sprintf("--monotonic=%d", int(skew.Seconds())), self)
	}
	p := &process{cmd: cmd, wait: make(map[int]chan reply), gone: make(chan struct{}), log: new(lockedBuffer)}
	env, err := json.Marshal(o)
	must(t, err)
	p.cmd.Env = append(os.Environ(), envNode+"="+string(env), "GORACE=atexit_sleep_ms=0")
	p.cmd.Stderr = p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.in, err = p.cmd.StdinPipe()
	must(t, err)
	out, err := p.cmd.StdoutPipe()
	must(t, err)
	must(t, p.cmd.Start())
	go func() {
		d := json.NewDecoder(bufio.NewReader(out))
		for {
			var r reply
			if d.Decode(&r) != nil {
				break
			}
			p.mu.Lock()
			ch := p.wait[r.N]
			delete(p.wait, r.N)
			p.mu.Unlock()
			if ch != nil {
				ch <- r
			}
		}
		_ = p.cmd.Wait()
		close(p.gone)
	}()
	return p
}

var commandNumber atomic.Int64

// tell sends a command without an answer.
func (p *process) tell(c command) {
	line, _ := json.Marshal(c)
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = p.in.Write(append(line, '\n')) // a process that ended has a new disk
}

// ask sends a command. A missing answer counts as "uncertain".
func (p *process) ask(c command, patience time.Duration) reply {
	c.N = int(commandNumber.Add(1))
	ch := make(chan reply, 1)
	line, _ := json.Marshal(c)
	p.mu.Lock()
	p.wait[c.N] = ch
	_, err := p.in.Write(append(line, '\n'))
	p.mu.Unlock()
	if err != nil {
		return reply{Err: "no"}
	}
	select {
	case r := <-ch:
		return r
	case <-p.gone:
		select {
		case r := <-ch:
			return r
		default:
		}
	case <-time.After(patience):
	}
	return reply{Err: "uncertain"}
}

// chaos is a run of three nodes in child processes, with clients and a nemesis, which
// causes the faults.
type chaos struct {
	t         testing.TB
	dir       string
	peers     map[string]string
	bug       testBug
	forward   bool
	snapshots bool            // many
	backup    string          // the target; "" without one
	skewed    bool            // whether time namespaces can be made
	disks     bool            // whether the nemesis made disks fail or be full
	joined    map[string]bool // nodes that were added to the running cluster
	net       *faultyNet
	mu        sync.Mutex
	nodes     map[string]*process
	logs      []string
}

var chaosIDs = []string{"a", "b", "c"}

func newChaos(t testing.TB, bug testBug, forward, snapshots bool) *chaos {
	c := &chaos{snapshots: snapshots, t: t, dir: t.TempDir(), peers: make(map[string]string), bug: bug, forward: forward, nodes: make(map[string]*process), joined: make(map[string]bool),
		net: &faultyNet{listen: make(map[string]string), conns: make(map[net.Conn]bool)}}
	if continuous.follow != nil && bug == noBug { // a bug may lose what the backup has
		c.backup = filepath.Join(c.dir, "backup")
	}
	c.skewed = exec.Command("unshare", "--time", "--monotonic=3600", "true").Run() == nil
	if !c.skewed {
		t.Log("time namespaces cannot be made here: clocks are not skewed")
	}
	for i, a := range ringtest.FreeAddresses(t, ringtest.OwnHost(), 3) {
		c.net.listen[chaosIDs[i]] = a
	}
	for _, id := range chaosIDs {
		// The other nodes reach a node through wires that can be cut.
		c.peers[id] = c.net.wire(t, id)
		must(t, os.MkdirAll(c.shadow(id), 0o700))
	}
	for _, id := range chaosIDs {
		c.start(id, 0)
	}
	t.Cleanup(func() {
		for _, p := range c.nodes {
			_ = p.cmd.Process.Kill()
			<-p.gone
		}
	})
	return c
}

func (c *chaos) shadow(id string) string { return filepath.Join(c.dir, "shadow-"+id) }

func (c *chaos) start(id string, skew time.Duration) {
	o := childOptions{ID: id, Dir: filepath.Join(c.dir, id), Listen: c.net.listen[id], Advertise: c.peers[id], Peers: c.peers, Bug: c.bug,
		Shadow: c.shadow(id), Forward: c.forward, Snapshots: c.snapshots, Backup: c.backup,
		Election: time.Duration(float64(600*time.Millisecond) * crowded())}
	if c.joined[id] {
		o.Peers = nil
	}
	p := spawn(c.t, o, skew)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes[id] = p
}

func (c *chaos) node(id string) *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[id]
}

// kill kills nodes, all at once.
func (c *chaos) kill(ids ...string) {
	for _, id := range ids {
		_ = c.node(id).cmd.Process.Kill()
	}
	for _, id := range ids {
		p := c.node(id)
		<-p.gone
		c.logs = append(c.logs, p.log.String())
	}
}

// powerCut kills nodes and starts them again with the content that their disks have then.
func (c *chaos) powerCut(r *rand.Rand, ids ...string) {
	c.kill(ids...)
	for _, id := range ids {
		if err := cutPower(r, filepath.Join(c.dir, id), c.shadow(id)); err != nil {
			c.t.Errorf("cutting the power of %s: %v", id, err)
		}
		c.start(id, 0)
	}
}

// faultyNet has wires to all nodes. It can hold the data from one node to another, and let them pass slowly.
type faultyNet struct {
	listen map[string]string
	held   sync.Map     // direction: true
	slow   sync.Map     // the *pace of what goes to a node
	bytes  atomic.Int64 // number of bytes that went through
	mu     sync.Mutex
	conns  map[net.Conn]bool
}

type direction struct{ from, to string }

// pace lets a number of bytes pass in a second.
type pace struct {
	rate int
	mu   sync.Mutex
	next time.Time // when the next bytes may pass
}

func (p *pace) wait(n int) {
	p.mu.Lock()
	if now := time.Now(); p.next.Before(now) {
		p.next = now
	}
	at := p.next
	p.next = at.Add(time.Duration(n) * time.Second / time.Duration(p.rate))
	p.mu.Unlock()
	time.Sleep(time.Until(at))
}

// wire listens for connections to a node.
func (f *faultyNet) wire(t testing.TB, to string) (address string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go f.forward(in, to)
		}
	}()
	t.Cleanup(func() {
		l.Close()
		f.mu.Lock()
		defer f.mu.Unlock()
		for c := range f.conns {
			c.Close()
		}
	})
	return l.Addr().String()
}

// forward reads the caller from the first message.
func (f *faultyNet) forward(in net.Conn, to string) {
	var h hello
	if receive(in, &h) != nil {
		in.Close()
		return
	}
	out, err := net.Dial("tcp", f.listen[to])
	if err != nil {
		in.Close()
		return
	}
	f.mu.Lock()
	f.conns[in], f.conns[out] = true, true
	f.mu.Unlock()
	wait := func(d direction) {
		for {
			if _, held := f.held.Load(d); !held {
				return
			}
			time.Sleep(5 * time.Millisecond) // no data arrives; the connection stays open
		}
	}
	end := func() {
		in.Close()
		out.Close()
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.conns, in)
		delete(f.conns, out)
	}
	pipe := func(dst, src net.Conn, d direction) {
		defer end()
		p := make([]byte, 32<<10)
		for {
			n, err := src.Read(p)
			f.bytes.Add(int64(n))
			if slow, ok := f.slow.Load(d.to); ok {
				slow.(*pace).wait(n)
			}
			if wait(d); n > 0 {
				if _, err := dst.Write(p[:n]); err != nil {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}
	wait(direction{h.From, to})
	if send(out, h) != nil {
		end()
		return
	}
	go pipe(out, in, direction{h.From, to})
	pipe(in, out, direction{to, h.From})
}

// hold holds the data in some directions until the returned function is called.
func (f *faultyNet) hold(all ...direction) (release func()) {
	for _, d := range all {
		f.held.Store(d, true)
	}
	return func() {
		for _, d := range all {
			f.held.Delete(d)
		}
	}
}

// nemesis causes faults until stop is closed. It returns a list of them.
func (c *chaos) nemesis(r *rand.Rand, stop <-chan struct{}) (did []string) {
	pause := func(least, more int) bool {
		select {
		case <-stop:
			return false
		case <-time.After(time.Duration(least+r.IntN(more)) * time.Millisecond):
			return true
		}
	}
	for pause(100, 400) {
		order := r.Perm(3)
		x, y, z := chaosIDs[order[0]], chaosIDs[order[1]], chaosIDs[order[2]]
		p := c.node(x)
		note := func(format string, args ...any) { did = append(did, fmt.Sprintf(format, args...)) }
		cut := func(all ...direction) {
			release := c.net.hold(all...)
			pause(200, 1000)
			release()
		}
		disk := func(state int, ids ...string) {
			c.disks = true
			for _, id := range ids {
				c.node(id).tell(command{Kind: "disk", Val: state})
			}
			pause(200, 800)
			for _, id := range ids {
				c.node(id).tell(command{Kind: "disk", Val: diskGood})
			}
		}
		kinds := 14
		if c.snapshots {
			kinds = 20
		}
		switch r.IntN(kinds) {
		case 0, 1:
			note("kill %s", x)
			c.kill(x)
			pause(0, 300)
			c.start(x, 0)
		case 2:
			note("stop %s", x)
			_ = p.cmd.Process.Signal(syscall.SIGSTOP)
			pause(200, 800)
			_ = p.cmd.Process.Signal(syscall.SIGCONT)
		case 3:
			note("cut %s off", x)
			cut(direction{x, y}, direction{y, x}, direction{x, z}, direction{z, x})
		case 4:
			note("nothing from %s", x)
			cut(direction{x, y}, direction{x, z})
		case 5:
			note("nothing to %s", x)
			cut(direction{y, x}, direction{z, x})
		case 6:
			note("%s is the bridge", x)
			cut(direction{y, z}, direction{z, y})
		case 7:
			note("one way between %s and %s", x, y)
			cut(direction{x, y})
		case 8:
			note("kill all")
			c.kill(chaosIDs...)
			for _, id := range chaosIDs {
				c.start(id, 0)
			}
		case 9:
			note("power of %s", x)
			c.powerCut(r, x)
		case 10:
			note("power of all")
			c.powerCut(r, chaosIDs...)
		case 11:
			note("syncs fail on %s", x)
			disk(diskSyncFails, x)
		case 12:
			ids := chaosIDs[:]
			if r.IntN(3) > 0 {
				ids = []string{x}
			}
			note("disk full on %s", strings.Join(ids, ""))
			disk(diskFull, ids...)
		case 13:
			if !c.skewed {
				continue
			}
			hours := 1 + r.IntN(100)
			note("clock of %s %d hours ahead", x, hours)
			c.kill(x)
			c.start(x, time.Duration(hours)*time.Hour)
		case 14:
			note("snapshots and a power cut of %s", x)
			for _, id := range chaosIDs {
				c.node(id).tell(command{Kind: "snapshot"})
			}
			pause(0, 100)
			c.powerCut(r, x)
		case 15, 16:
			note("%s misses what the others cut from their logs", x)
			release := c.net.hold(direction{x, y}, direction{y, x}, direction{x, z}, direction{z, x})
			pause(500, 1500)
			for _, id := range []string{y, z} {
				c.node(id).tell(command{Kind: "snapshot"})
			}
			pause(100, 300)
			release()
			pause(0, 300)
		case 17:
			note("%s has a new disk", x)
			c.newDisk(x)
		case 18, 19:
			note("%s is emptied", x)
			c.kill(x)
			c.empty(x)
			c.joined[x] = r.IntN(2) == 0 // otherwise it has the options of a new cluster again
			c.start(x, 0)
			for pause(0, 600) && r.IntN(2) == 0 {
				// The others elect a leader without the vote of x, and lose nothing.
				note("meanwhile kill %s", y)
				c.kill(y)
				pause(0, 300)
				c.start(y, 0)
				y, z = z, y
			}
			c.change("leave", x)
			c.change("join", x)
		}
	}
	return did
}

// newDisk replaces a node by one with an empty directory, as docs/guide-replica.md says.
func (c *chaos) newDisk(id string) {
	c.kill(id)
	c.change("leave", id)
	c.empty(id)
	c.joined[id] = true
	c.start(id, 0)
	c.change("join", id)
}

// empty removes the directory of a dead node.
func (c *chaos) empty(id string) {
	for _, dir := range []string{filepath.Join(c.dir, id), c.shadow(id)} {
		if err := os.RemoveAll(dir); err != nil {
			c.t.Error(err)
		}
	}
	if err := os.Mkdir(c.shadow(id), 0o700); err != nil {
		c.t.Error(err)
	}
}

// change removes a member ("leave") or adds it ("join"). An emptied member may lead: it has votes of
// others after its log has come far enough.
func (c *chaos) change(kind, id string) {
	begin := time.Now()
	for end := begin.Add(patience); ; time.Sleep(5 * time.Millisecond) {
		var all []string
		for _, other := range chaosIDs {
			r := c.node(other).ask(command{Kind: kind, Text: id + " " + c.peers[id]}, 10*time.Second)
			if r.Err == "" {
				if d := time.Since(begin); d > patience/3 {
					c.t.Logf("%s %s took %v; before: %q", kind, id, d, all)
				}
				return
			}
			all = append(all, other+": "+r.Detail)
		}
		if time.Now().After(end) {
			c.dump()
			c.t.Errorf("%s %s: %q", kind, id, all)
			return
		}
	}
}

// input and output of an operation on a register.
type input struct {
	kind string
	db   string
	key  int
	val  int
}

type output struct {
	val     int
	text    string
	unknown bool
}

// registersAndLists is the model: each register and each list is independent.
var registersAndLists = (&porcupine.NondeterministicModel{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		parts := make(map[string][]porcupine.Operation)
		for _, o := range history {
			i := o.Input.(input)
			k := fmt.Sprint(i.db, i.key, i.kind == "list" || i.kind == "append")
			parts[k] = append(parts[k], o)
		}
		var all [][]porcupine.Operation
		for _, p := range parts {
			all = append(all, p)
		}
		return all
	},
	Init: func() []any { return []any{0} },
	Step: func(state, in, out any) []any {
		i, o := in.(input), out.(output)
		list, _ := state.(string) // value of a list; it begins as the number 0
		switch i.kind {
		case "list":
			if o.unknown || list == o.text {
				return []any{state}
			}
			return nil
		case "append":
			longer := strings.TrimPrefix(fmt.Sprint(list, ",", i.val), ",")
			if o.unknown {
				return []any{state, longer}
			}
			return []any{longer}
		}
		s := state.(int)
		switch i.kind {
		case "read":
			if o.unknown || s == o.val {
				return []any{s}
			}
			return nil
		case "write":
			if o.unknown {
				return []any{s, i.val}
			}
			return []any{i.val}
		}
		if o.unknown { // add
			return []any{s, s + i.val}
		}
		if s == o.val {
			return []any{s + i.val}
		}
		return nil
	},
	DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v -> %+v", in, out) },
}).ToModel()

// play runs clients on all nodes while the nemesis works, and returns what is wrong.
func (c *chaos) play(seed uint64, d time.Duration) (wrong []string, operations int) {
	const clients = 6
	var mu sync.Mutex
	var history []porcupine.Operation
	begin := time.Now()
	dbs := []string{"one", "two"}
	fault := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		wrong = append(wrong, fmt.Sprintf(format, args...))
	}
	for _, db := range dbs {
		c.ask(command{Kind: "setup", DB: db})
	}
	stop := make(chan struct{})
	var over sync.WaitGroup
	var acked atomic.Int64
	said := &books{appended: make(map[string][]int), refused: make(map[string][]int), dbs: dbs}
	for client := range clients {
		over.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(client)+100))
			id := client % 3
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				cmd := command{DB: dbs[r.IntN(2)], Key: r.IntN(3), Kind: []string{"read", "read", "write", "add", "transfer", "total", "append", "append", "list", "send"}[r.IntN(10)]}
				cmd.Val = 1 + n*clients + client
				switch cmd.Kind {
				case "transfer":
					cmd.From, cmd.Val = 3, 1+r.IntN(5)
				case "append", "list":
					cmd.Key = n / 60 // lists stay short
				case "read", "write", "add":
					cmd.Key += n / 60 * 10 // and histories
				}
				p := c.node(chaosIDs[id])
				call := time.Since(begin).Nanoseconds()
				a := p.ask(cmd, 3*time.Second)
				back := time.Since(begin).Nanoseconds()
				switch {
				case a.Err == "no":
					if cmd.Kind == "append" {
						said.refuse(cmd)
					}
					id = (id + 1) % 3
					time.Sleep(time.Duration(1+r.IntN(10)) * time.Millisecond)
					continue
				case a.Err == "failed":
					fault("%+v: %s", cmd, a.Detail)
					continue
				case cmd.Kind == "total":
					if a.Err == "" && a.Val != 400 {
						fault("the accounts of %s have %d", cmd.DB, a.Val)
					}
					continue
				case cmd.Kind == "send":
					if a.Err == "" {
						acked.Add(1)
						other := cmd
						other.Kind, other.DB = "take", dbs[0]
						if cmd.DB == dbs[0] {
							other.DB = dbs[1]
						}
						_ = p.ask(other, 3*time.Second) // failures here are made up for at the end
					}
					continue
				case cmd.Kind == "transfer":
					if a.Err == "" {
						acked.Add(1)
					}
					continue
				case a.Err != "" && (cmd.Kind == "read" || cmd.Kind == "list"):
					continue
				case a.Err != "":
					back = 1 << 62 // it may take effect at any later time
				default:
					acked.Add(1)
					if cmd.Kind == "append" {
						said.acknowledge(cmd)
					}
				}
				mu.Lock()
				history = append(history, porcupine.Operation{ClientId: client, Input: input{cmd.Kind, cmd.DB, cmd.Key, cmd.Val}, Call: call,
					Output: output{a.Val, a.Text, a.Err != ""}, Return: back})
				mu.Unlock()
			}
		})
	}
	nemesis := make(chan []string, 1)
	go func() { nemesis <- c.nemesis(rand.New(rand.NewPCG(seed, 0)), stop) }()
	time.Sleep(d)
	close(stop)
	did := <-nemesis
	over.Wait()
	// An operation that timed out keeps its client busy in the model for ever: each such
	// operation gets its own client.
	for i := range history {
		if history[i].Return == 1<<62 {
			history[i].ClientId = clients + i
		}
	}
	if res, _ := porcupine.CheckOperationsVerbose(registersAndLists, history, 20*time.Second); res == porcupine.Illegal {
		fault("the history is not linearizable")
	} else if res == porcupine.Unknown {
		c.t.Logf("seed %d: the history is too long to be judged", seed)
	}
	c.t.Logf("seed %d: %d operations, %d acknowledged; %s", seed, len(history), acked.Load(), strings.Join(did, ", "))
	wrong = append(wrong, c.audit(said)...)
	return append(wrong, c.judge()...), len(history)
}

// books records the answers that clients got.
type books struct {
	dbs               []string
	mu                sync.Mutex
	appended, refused map[string][]int // values by database
}

func (b *books) acknowledge(c command) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.appended[c.DB] = append(b.appended[c.DB], c.Val)
}

func (b *books) refuse(c command) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refused[c.DB] = append(b.refused[c.DB], c.Val)
}

// ask asks the nodes until one answers.
func (c *chaos) ask(cmd command) (r reply) {
	c.t.Helper()
	uncertain := false // an earlier attempt may have been committed
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		var all []string
		for _, id := range chaosIDs {
			if r = c.node(id).ask(cmd, 10*time.Second); r.Err == "" || uncertain && strings.Contains(r.Detail, "UNIQUE constraint failed") {
				return r
			}
			uncertain = uncertain || r.Err != "no"
			all = append(all, fmt.Sprintf("%s: %s, %s", id, r.Err, r.Detail))
			if r.Err == "failed" {
				c.t.Fatalf("%+v: %q", cmd, all)
			}
		}
		if time.Now().After(end) {
			c.dump()
			c.t.Fatalf("%+v: %q", cmd, all)
		}
	}
}

// dump ends the nodes and prints what they did.
func (c *chaos) dump() {
	for _, id := range chaosIDs {
		p := c.node(id)
		_ = p.cmd.Process.Signal(syscall.SIGQUIT)
		select {
		case <-p.gone:
		case <-time.After(time.Second):
		}
		c.t.Logf("%s\n%.40000s", id, p.log.String())
	}
}

// audit checks acknowledged and refused values, and completes the transfers between
// databases.
func (c *chaos) audit(said *books) (wrong []string) {
	numbers := func(list string) map[int]int {
		m := make(map[int]int)
		for item := range strings.SplitSeq(list, ",") {
			var id, n int
			if _, err := fmt.Sscanf(item, "%d:%d", &id, &n); err == nil {
				m[id] = n
			} else if _, err := fmt.Sscanf(item, "%d", &id); err == nil {
				m[id] = 0
			}
		}
		return m
	}
	for _, id := range chaosIDs {
		c.node(id).ask(command{Kind: "idle"}, patience) // operations without an answer may still run
	}
	sent := make(map[string]map[int]int)
	for _, db := range said.dbs {
		parts := strings.Split(c.ask(command{Kind: "books", DB: db}).Text, ";")
		sent[db] = numbers(parts[1])
		list := numbers(parts[3])
		for _, v := range said.appended[db] {
			if _, ok := list[v]; !ok {
				wrong = append(wrong, fmt.Sprintf("%d was acknowledged and is not in %s", v, db))
			}
		}
		for _, v := range said.refused[db] {
			if _, ok := list[v]; ok {
				wrong = append(wrong, fmt.Sprintf("%d was refused and is in %s", v, db))
			}
		}
	}
	total := 0
	for i, db := range said.dbs {
		from := said.dbs[1-i]
		taken := numbers(strings.Split(c.ask(command{Kind: "books", DB: db}).Text, ";")[2])
		for id := range taken {
			if _, ok := sent[from][id]; !ok {
				wrong = append(wrong, fmt.Sprintf("%s has taken %d, which %s has not sent", db, id, from))
			}
		}
		for id, n := range sent[from] {
			if _, ok := taken[id]; !ok {
				c.ask(command{Kind: "take", DB: db, Val: id, Key: n})
			}
		}
		purse, _, _ := strings.Cut(c.ask(command{Kind: "books", DB: db}).Text, ";")
		n, err := strconv.Atoi(purse)
		must(c.t, err)
		total += n
	}
	if total != 2000 {
		wrong = append(wrong, fmt.Sprintf("the purses of all databases have %d instead of 2000", total))
	}
	return wrong
}

// judge waits until the nodes have no damaged database, compares them, and checks their
// files.
func (c *chaos) judge() (wrong []string) {
	var last reply
	states := make(map[string]string)
	ids := chaosIDs
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		done := false
		for _, id := range ids {
			r := c.node(id).ask(command{Kind: "check"}, patience)
			if r.Detail != "" || last.Detail == "" {
				last = r
			}
			if r.Err == "failed" {
				return append(wrong, "the nodes differ: "+r.Detail)
			}
			states[id] = r.Text
			done = done || r.Err == ""
		}
		if done {
			break
		}
		if time.Now().After(end) {
			c.dump()
			return append(wrong, fmt.Sprintf("the nodes are not whole: %+v", last))
		}
	}
	if c.snapshots {
		c.t.Log(states["a"], "; ", states["b"], "; ", states["c"])
	}
	if c.backup != "" {
		c.ask(command{Kind: "backed up"})
	}
	for _, id := range ids {
		p := c.node(id)
		if r := p.ask(command{Kind: "check"}, patience); r.Val != 0 && !c.disks {
			wrong = append(wrong, id+" noticed pages that differ: "+p.log.String())
		}
		_ = p.in.Close()
		select {
		case <-p.gone:
		case <-time.After(patience):
			_ = p.cmd.Process.Signal(syscall.SIGQUIT)
			<-p.gone
			wrong = append(wrong, id+" does not close: "+p.log.String())
		}
		c.logs = append(c.logs, p.log.String())
	}
	for _, db := range []string{"one", "two"} {
		var files []string
		for _, id := range ids {
			path := filepath.Join(c.dir, id, "data", db)
			files = append(files, path)
			stock(c.t, path)
			if err := whole(path); err != nil {
				wrong = append(wrong, err.Error())
			}
		}
		if c.backup != "" {
			wrong = append(wrong, continuous.judge(c.t, c.backup, db, files)...)
		}
	}
	for _, l := range c.logs {
		if strings.Contains(l, "DATA RACE") || strings.Contains(l, "panic:") {
			wrong = append(wrong, l)
		}
	}
	return wrong
}

// TestMissingSyncLosesCommits: nodes whose snapshots do not sync the files lose commits in
// a power cut of all nodes.
// Promise: replica/raft-removes-entries
// Promise: replica/tests-find-bug
func TestMissingSyncLosesCommits(t *testing.T) {
	for _, p := range []testBug{noBug, bugNoSync} {
		t.Run(fmt.Sprint(p), func(t *testing.T) {
			t.Parallel()
			c := newChaos(t, p, true, true)
			c.ask(command{Kind: "setup", DB: "one"})
			sent := 0
			until(t, "logs that were cut", func() bool {
				c.ask(command{Kind: "append", DB: "one", Val: sent})
				sent++
				return c.cutLogs(100)
			})
			c.kill(chaosIDs...)
			for _, id := range chaosIDs {
				must(t, cutPower(nil, filepath.Join(c.dir, id), c.shadow(id)))
				c.start(id, 0)
			}
			rows, wait := -1, patience
			if p != noBug {
				wait = 10 * time.Second // there may be no leader any more
			}
			for end := time.Now().Add(wait); rows < 0 && time.Now().Before(end); {
				for _, id := range chaosIDs {
					if r := c.node(id).ask(command{Kind: "list", DB: "one"}, 3*time.Second); r.Err == "" {
						rows = strings.Count(r.Text, ",") + 1
					}
				}
			}
			if (rows == sent) != (p == noBug) {
				t.Errorf("%d of %d rows are there", rows, sent)
			}
		})
	}
}

// cutLogs reports whether each node's log has lost entries before the index given. A node cuts its
// log after it has taken a snapshot, and before it takes the next one: so that of two snapshots
// which are so far ahead the older one's entries are gone.
func (c *chaos) cutLogs(index int) bool {
	for _, id := range chaosIDs {
		taken := make(map[int]bool)
		for _, dir := range []string{"snapshots", filepath.Join("raft", "snapshots")} {
			all, err := filepath.Glob(filepath.Join(c.dir, id, dir, "*", "meta.json"))
			must(c.t, err)
			for _, meta := range all {
				var term, at int // of TERM-INDEX-TIME, raft's name of a snapshot
				_, err := fmt.Sscanf(filepath.Base(filepath.Dir(meta)), "%d-%d-", &term, &at)
				if err == nil && at >= index {
					taken[at] = true
				}
			}
		}
		if len(taken) < 2 {
			return false
		}
	}
	return true
}

// put appends a value on the node that accepts it, and records the answer. It reports
// whether the value was acknowledged.
func (c *chaos) put(said *books, cmd command) bool {
	for _, id := range chaosIDs {
		switch r := c.node(id).ask(cmd, 3*time.Second); r.Err {
		case "":
			said.acknowledge(cmd)
			return true
		case "no":
		default:
			return false // the value may be there
		}
	}
	said.refuse(cmd)
	return false
}

// TestDiskFull fills the disks of the leader, of a follower and of all nodes. When there is
// space again, the cluster continues without a restart, and has all acknowledged commits.
// Promise: replica/cluster-goes-without
func TestDiskFull(t *testing.T) {
	t.Parallel()
	c := newChaos(t, noBug, false, false)
	c.disks = true
	c.ask(command{Kind: "setup", DB: "one"})
	c.ask(command{Kind: "setup", DB: "two"})
	said := &books{appended: make(map[string][]int), refused: make(map[string][]int), dbs: []string{"one", "two"}}
	written := 0
	for _, full := range []string{"leader", "follower", "all"} {
		var ids []string
		leader, answers := "", ""
		for end := time.Now().Add(patience); leader == ""; time.Sleep(5 * time.Millisecond) {
			answers = ""
			for _, id := range chaosIDs {
				if r := c.node(id).ask(command{Kind: "check"}, patience); r.Err == "" {
					leader = id
				} else {
					answers += fmt.Sprintf("%s: %s; ", id, r.Detail)
				}
			}
			if leader == "" && time.Now().After(end) {
				c.dump()
				t.Fatalf("no leader: %s", answers)
			}
		}
		ids = []string{leader}
		switch full {
		case "follower":
			ids = slices.DeleteFunc(slices.Clone(chaosIDs), func(id string) bool { return id == leader })[:1]
		case "all":
			ids = chaosIDs
		}
		for _, id := range ids {
			c.node(id).tell(command{Kind: "disk", Val: diskFull})
		}
		acknowledged := 0
		for range 30 {
			written++
			if c.put(said, command{Kind: "append", DB: "one", Key: written / 50, Val: written}) {
				acknowledged++
			}
		}
		if full == "follower" && acknowledged == 0 {
			t.Error("nothing was acknowledged although two nodes have room")
		}
		for _, id := range ids {
			c.node(id).tell(command{Kind: "disk", Val: diskGood})
		}
		c.ask(command{Kind: "add", DB: "two", Val: 1}) // commits are possible again
		t.Logf("full disk: %s; %d commits were acknowledged meanwhile", full, acknowledged)
	}
	for _, w := range append(c.audit(said), c.judge()...) {
		t.Error(w)
	}
}

// TestClocks: nodes whose clocks are hours apart elect leaders, commit and read.
// Promise: replica/clocks-matter
func TestClocks(t *testing.T) {
	t.Parallel()
	c := newChaos(t, noBug, false, false)
	if !c.skewed {
		t.Skip("time namespaces cannot be made here")
	}
	said := &books{appended: make(map[string][]int), refused: make(map[string][]int), dbs: []string{"one", "two"}}
	for i, hours := range []int{3, 100, 1000} {
		c.kill(chaosIDs[i])
		c.start(chaosIDs[i], time.Duration(hours)*time.Hour)
		c.ask(command{Kind: "setup", DB: "one"})
		c.ask(command{Kind: "setup", DB: "two"})
		for n := range 10 {
			c.put(said, command{Kind: "append", DB: "one", Key: i, Val: 100*i + n})
		}
	}
	for _, w := range append(c.audit(said), c.judge()...) {
		t.Error(w)
	}
}

// TestChaos runs clients against three nodes in child processes. The nodes are killed,
// stopped, and cut off in all ways, their power is cut, their disks fail, and their clocks
// differ by hours. The test checks that the histories of registers and lists are
// linearizable, that acknowledged values are there and refused values are not, that money
// is neither created nor lost within and between databases, that all nodes have the same
// pages, and that SQLite finds no damage in the files. In `make chaos` the leader stores a continuous backup, and after each run
// its restored databases are those of the nodes, page for page.
// Promise: replica/backup-continues
// Promise: replica/clocks-matter
// Promise: replica/cluster-goes-without
// Promise: replica/commit-returned-majority
// Promise: replica/error-commit-certain
// Promise: replica/file-commit-could
// Promise: replica/leader-removed-itself
// Promise: replica/log-carries-changes
// Promise: replica/member-fetches-file
// Promise: replica/member-whose-directory
// Promise: replica/node-joins-lost
// Promise: replica/nodes-pages-stock
func TestChaos(t *testing.T) {
	begin, total, played := time.Now(), 0, 0
	for ; played < *seeds || time.Since(begin) < *long; played++ {
		s := *seed + uint64(played)
		t.Run(fmt.Sprint(s), func(t *testing.T) {
			c := newChaos(t, noBug, s%2 == 1, *snapshots || s%4 >= 2)
			wrong, n := c.play(s, *duration)
			for _, w := range wrong {
				t.Error(w)
			}
			if total += n; n == 0 {
				t.Error("there was no operation")
			}
		})
	}
	t.Logf("%d seeds, %d operations in the histories, %v", played, total, time.Since(begin).Round(time.Second))
}
