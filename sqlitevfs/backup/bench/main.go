// SPDX-License-Identifier: MIT

//go:build linux

// Command bench measures a backup of many SQLite databases:
//
//	bench busy -dbs 64 -target /dev/shm     commits with and without a backup, in turns
//	bench idle -dbs 10000                   memory, descriptors and processor time of a backup without commits
//	bench litestream -dbs 500 -exe PROGRAM  the same of Litestream
//	bench wake -dbs 10000                   opening, using and closing databases
//	bench hour -dbs 10000 -turns 60 -turn 1m -kill 10m  a backup while tenants come and go and the process is killed
//	bench start -dbs 10000 -busy 64         the first start of a backup beside tenants that commit
//
// Each makes its databases in a new directory below -dir.
package main

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	_ "github.com/ncruces/go-sqlite3/driver"

	_ "github.com/ringside-io/ringside/sqlitevfs"
	"github.com/ringside-io/ringside/sqlitevfs/backup"
)

// options are set by the command line.
type options struct {
	dir, target, vfs, exe, profile, only string
	statement                            string
	dbs, turns, busy, parallel           int
	goroutines                           int
	rate                                 float64
	turn, kill                           time.Duration
	interval, away, most                 time.Duration
}

func main() {
	log.SetFlags(0)
	var o options
	f := flag.CommandLine
	f.StringVar(&o.dir, "dir", "/var/tmp", "where the databases are made")
	f.StringVar(&o.target, "target", "", "where the target is made; default: -dir")
	f.StringVar(&o.vfs, "vfs", "ringside-log", "the VFS")
	f.StringVar(&o.exe, "exe", "litestream", "Litestream's program")
	f.StringVar(&o.profile, "profile", "", "write a profile of the turns with a backup to this file")
	f.IntVar(&o.dbs, "dbs", 64, "databases")
	f.IntVar(&o.busy, "busy", 64, "how many databases commit at a time (hour), or are open at a time (tenants in wake)")
	f.IntVar(&o.turns, "turns", 5, "pairs of turns; turns of hour")
	f.DurationVar(&o.turn, "turn", 4*time.Second, "how long a turn is")
	f.DurationVar(&o.kill, "kill", 0, "how often the process is killed; 0: never (hour)")
	f.Float64Var(&o.rate, "rate", 1, "commits a second of each busy database (hour)")
	f.StringVar(&o.only, "only", "", "measure the ways to wake a database whose name begins so")
	f.StringVar(&o.statement, "statement", "", "SELECT or UPDATE; default: both (wake)")
	f.IntVar(&o.goroutines, "goroutines", 0, "how many; 0: 1, 2 and 8 in turn (wake)")
	f.IntVar(&o.parallel, "parallel", 0, "Options.Parallel; 0: the default")
	f.DurationVar(&o.interval, "interval", 0, "Options.Interval; 0: the default")
	f.DurationVar(&o.most, "most", 3*time.Minute, "how long to wait until Litestream has stored all databases")
	f.DurationVar(&o.away, "away", 0, "how much longer each request takes, as with a store behind a network")
	if len(os.Args) < 2 {
		log.Fatal("usage: bench busy|idle|litestream|wake|hour|start [FLAGS]")
	}
	_ = f.Parse(os.Args[2:])
	if os.Args[1] == "visits" { // of hour
		if err := visits(o); err != nil {
			log.Fatal(err)
		}
		return
	}
	dir, err := os.MkdirTemp(o.dir, "backup-bench-")
	if err != nil {
		log.Fatal(err)
	}
	o.dir = dir
	target, err := os.MkdirTemp(o.target, "backup-bench-target-")
	if o.target == "" {
		target, err = filepath.Join(dir, "target"), os.Mkdir(filepath.Join(dir, "target"), 0o700)
	}
	o.target = target
	run := map[string]func(options) error{"busy": busy, "idle": idle, "litestream": litestream, "wake": wake, "hour": hour, "start": firstStart}[os.Args[1]]
	switch {
	case err != nil:
	case run == nil:
		err = fmt.Errorf("%q: must be busy, idle, litestream, wake, hour or start", os.Args[1])
	default:
		err = run(o)
	}
	_ = os.RemoveAll(dir)
	_ = os.RemoveAll(target)
	if err != nil {
		log.Fatal(err)
	}
}

func (o options) data() string { return filepath.Join(o.dir, "data") }

func (o options) path(i int) string { return filepath.Join(o.data(), fmt.Sprintf("t%05d.db", i)) }

// create makes the databases as copies of one.
func (o options) create() error {
	if err := os.Mkdir(o.data(), 0o700); err != nil {
		return err
	}
	db, err := o.open(0)
	if err != nil {
		return err
	}
	if _, err := db.Exec(`CREATE TABLE t(id INTEGER PRIMARY KEY, body);
		WITH n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<100) INSERT INTO t SELECT i, randomblob(500) FROM n`); err != nil {
		return err
	}
	if err := db.Close(); err != nil {
		return err
	}
	content, err := os.ReadFile(o.path(0))
	for i := 1; i < o.dbs && err == nil; i++ {
		err = os.WriteFile(o.path(i), content, 0o600)
	}
	syscall.Sync() // a turn does not pay for them
	return err
}

func (o options) open(i int) (*sql.DB, error) {
	db, err := sql.Open("sqlite3", "file:"+o.path(i)+"?vfs="+o.vfs+
		"&_txlock=immediate&_pragma=busy_timeout(60000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)")
	if err == nil {
		db.SetMaxOpenConns(1)
	}
	return db, err
}

func (o options) start() (*backup.Backup, error) {
	return backup.Start(backup.Options{
		Dir: o.data(), Target: distant{backup.Dir(o.target), o.away}, Interval: o.interval, Parallel: o.parallel, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
}

// distant is a directory whose requests take longer.
type distant struct {
	backup.Dir
	away time.Duration
}

// List implements backup.Target.
func (d distant) List(ctx context.Context, prefix string) ([]backup.Object, error) {
	time.Sleep(d.away)
	return d.Dir.List(ctx, prefix)
}

// Put implements backup.Target.
func (d distant) Put(ctx context.Context, name string, body *io.SectionReader, stamp time.Time) error {
	time.Sleep(d.away)
	return d.Dir.Put(ctx, name, body, stamp)
}

// Get implements backup.Target.
func (d distant) Get(ctx context.Context, name string, off, n int64) (io.ReadCloser, error) {
	time.Sleep(d.away)
	return d.Dir.Get(ctx, name, off, n)
}

// Delete implements backup.Target. As with package s3 one request removes all.
func (d distant) Delete(ctx context.Context, names ...string) error {
	time.Sleep(d.away)
	return d.Dir.Delete(ctx, names...)
}

// idle measures a backup of databases that do not commit.
func idle(o options) error {
	if err := o.create(); err != nil {
		return err
	}
	report("before", cpuTime(), time.Now())
	for _, state := range []string{"target empty", "target has all"} {
		begin := time.Now()
		b, err := o.start()
		if err == nil {
			err = b.Sync(context.Background())
		}
		if err != nil {
			return err
		}
		fmt.Printf("%d databases, %s: started in %.2f s, %+v\n", o.dbs, state, time.Since(begin).Seconds(), b.Stats())
		for _, open := range []int{0, min(200, o.dbs)} {
			dbs := make([]*sql.DB, open)
			for i := range dbs {
				if dbs[i], err = o.open(i); err == nil {
					_, err = dbs[i].Exec("UPDATE t SET body = randomblob(500) WHERE id = 7")
				}
				if err != nil {
					return err
				}
			}
			if err := b.Sync(context.Background()); err != nil {
				return err
			}
			runtime.GC()
			cpu, since := cpuTime(), time.Now()
			time.Sleep(o.turn)
			report(fmt.Sprintf("%s, %d open", state, open), cpu, since)
			for _, db := range dbs {
				db.Close()
			}
		}
		if err := b.Shutdown(context.Background()); err != nil {
			return err
		}
	}
	return nil
}

func report(what string, cpu time.Duration, since time.Time) {
	rss, fds := process("self")
	used := 100 * (cpuTime() - cpu).Seconds() / max(time.Since(since).Seconds(), 1e-9)
	fmt.Printf("%-28s RSS %d MB, %d descriptors, %d goroutines, %.2f %% of a processor\n", what, rss, fds, runtime.NumGoroutine(), used)
}

// spread sorts lags and describes them.
func spread(lags []time.Duration) string {
	if len(lags) == 0 {
		return "none"
	}
	slices.Sort(lags)
	at := func(p float64) float64 { return lags[int(p*float64(len(lags)-1))].Seconds() }
	return fmt.Sprintf("p50 %.2f s, p99 %.2f s, longest %.2f s", at(0.5), at(0.99), at(1))
}

// process returns the resident memory in MB and the descriptors of a process.
func process(pid string) (rss, fds int) {
	status, _ := os.ReadFile("/proc/" + pid + "/status")
	if _, rest, ok := strings.Cut(string(status), "VmRSS:"); ok {
		kb, _ := strconv.Atoi(strings.Fields(rest)[0])
		rss = kb >> 10
	}
	entries, _ := os.ReadDir("/proc/" + pid + "/fd")
	return rss, len(entries)
}

// profiled runs fn, and writes a profile of it if one is wanted.
func (o options) profiled(fn func() error) error {
	if o.profile == "" {
		return fn()
	}
	f, err := os.Create(o.profile)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := pprof.StartCPUProfile(f); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	return fn()
}
