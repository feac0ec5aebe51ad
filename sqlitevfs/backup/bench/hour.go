// SPDX-License-Identifier: MIT

//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/sqlitevfs/backup"
)

// hour backs up -dbs databases for -turns turns while the process that does so, see visits, is killed now and then. After each
// kill it restores what had just changed, and says how much the target lacked. In the end it restores all databases, and compares
// them with the originals and with what was acknowledged; the program sqlite3 checks them.
func hour(o options) error {
	if err := o.create(); err != nil {
		return err
	}
	d := &day{options: o, acknowledged: make(map[int][]int64), begun: make(map[int]int64)}
	for end := time.Now().Add(time.Duration(o.turns) * o.turn); ; {
		left := time.Until(end)
		last := o.kill == 0 || left <= o.kill
		if !last {
			left = o.kill
		}
		if err := d.child(left, last); err != nil {
			return err
		}
		if last {
			return d.verify()
		}
		if err := d.lacks(); err != nil {
			return err
		}
	}
}

// day is what happened to the databases. Each commit has the time when it began as its value, in nanoseconds.
type day struct {
	options
	acknowledged map[int][]int64 // by database
	begun        map[int]int64   // the newest one, by database
	killed       time.Time
}

// child runs visits for a time. It ends it by SIGKILL, or by SIGTERM if it is the last one.
func (d *day) child(run time.Duration, last bool) error {
	c := exec.Command("/proc/self/exe", "visits", "-dir", d.dir, "-target", d.target, "-vfs", d.vfs, "-dbs", fmt.Sprint(d.dbs),
		"-busy", fmt.Sprint(d.busy), "-turn", d.turn.String(), "-rate", fmt.Sprint(d.rate), "-away", d.away.String())
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		return err
	}
	end := time.AfterFunc(run, func() {
		if last {
			_ = c.Process.Signal(syscall.SIGTERM)
			return
		}
		d.killed = time.Now()
		_ = c.Process.Kill()
	})
	d.hear(bufio.NewReader(out))
	if early := end.Stop(); early || last {
		return c.Wait()
	}
	_ = c.Wait() // killed
	return nil
}

// hear reads what visits prints: lines about commits, and lines that are passed on.
func (d *day) hear(r *bufio.Reader) {
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		var i int
		var value int64
		if n, _ := fmt.Sscanf(line, "begin %d %d", &i, &value); n == 2 {
			d.begun[i] = value
		} else if n, _ := fmt.Sscanf(line, "done %d %d", &i, &value); n == 2 {
			d.acknowledged[i] = append(d.acknowledged[i], value)
		} else {
			fmt.Print(time.Now().Format(time.TimeOnly), " ", line)
		}
	}
}

// lacks restores the databases with commits in the last two seconds before the kill.
func (d *day) lacks() error {
	into, err := os.MkdirTemp(d.dir, "killed-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(into)
	var ids []int
	var names []string
	for i, all := range d.acknowledged {
		if all[len(all)-1] > d.killed.Add(-2*time.Second).UnixNano() {
			ids, names = append(ids, i), append(names, filepath.Base(d.path(i)))
		}
	}
	if err := backup.RestoreAll(context.Background(), backup.Dir(d.target), names, into, backup.RestoreOptions{}, nil); err != nil {
		return err
	}
	got, err := values(into, names)
	if err != nil {
		return err
	}
	var lacked []time.Duration
	for k, i := range ids {
		all := d.acknowledged[i]
		at := slices.Index(all, got[k])
		switch {
		case at == len(all)-1 || got[k] == d.begun[i]:
			lacked = append(lacked, 0)
		case at >= 0:
			lacked = append(lacked, d.killed.Sub(time.Unix(0, all[at+1])))
		default: // of a visit before, or none yet
			lacked = append(lacked, d.killed.Sub(time.Unix(0, d.visit(i))))
		}
	}
	fmt.Printf("%s killed: of %d databases in use the target lacked what was committed since: %s\n", d.killed.Format(time.TimeOnly), len(names), spread(lacked))
	return nil
}

// visit returns the first commit of the newest visit of a database.
func (d *day) visit(i int) int64 {
	all := d.acknowledged[i]
	n := len(all) - 1
	for n > 0 && all[n]-all[n-1] < int64(10*time.Second) {
		n--
	}
	return all[n]
}

// values has the program sqlite3 check databases and read the values of their commits, 0 if there was none.
func values(dir string, names []string) ([]int64, error) {
	var script strings.Builder
	for _, name := range names {
		fmt.Fprintf(&script, ".open %s\nPRAGMA integrity_check;\nSELECT iif(typeof(body) = 'integer', body, 0) FROM t WHERE id = 7;\n", filepath.Join(dir, name))
	}
	c := exec.Command("sqlite3", "-batch", "-bail")
	c.Stdin, c.Stderr = strings.NewReader(script.String()), os.Stderr
	out, err := c.Output()
	if err != nil {
		return nil, err
	}
	got := make([]int64, len(names))
	r := strings.NewReader(string(out))
	for k, name := range names {
		if _, err := fmt.Fscanf(r, "ok\n%d\n", &got[k]); err != nil {
			return nil, fmt.Errorf("%s: sqlite3's integrity_check: %w", name, err)
		}
	}
	if rest, _ := io.ReadAll(r); len(rest) > 0 {
		return nil, fmt.Errorf("sqlite3: %q", rest)
	}
	return got, nil
}

// verify restores all databases and compares them.
func (d *day) verify() error {
	into := filepath.Join(d.dir, "restored")
	if err := os.Mkdir(into, 0o700); err != nil {
		return err
	}
	names := make([]string, d.dbs)
	for i := range names {
		names[i] = filepath.Base(d.path(i))
	}
	begin := time.Now()
	if err := backup.RestoreAll(context.Background(), backup.Dir(d.target), names, into, backup.RestoreOptions{}, nil); err != nil {
		return err
	}
	fmt.Printf("%d databases restored in %.1f s\n", len(names), time.Since(begin).Seconds())
	got, err := values(into, names)
	if err != nil {
		return err
	}
	for i, all := range d.acknowledged {
		if want := all[len(all)-1]; got[i] != want && (got[i] < want || got[i] != d.begun[i]) {
			return fmt.Errorf("%s has %d; the last acknowledged value is %d", names[i], got[i], want)
		}
	}
	fmt.Printf("integrity_check of the program sqlite3: ok; %d databases had commits and are as acknowledged\n", len(d.acknowledged))
	begin = time.Now()
	if err := d.each(names, d.compare); err != nil {
		return err
	}
	fmt.Printf("Verify found no problem, and all databases are equal to the target's, %.1f s\n", time.Since(begin).Seconds())
	return nil
}

// compare verifies the stream of a database, and compares the database with its end.
func (d *day) compare(name string) error {
	report, err := backup.Verify(context.Background(), backup.Dir(d.target), name)
	if err != nil {
		return err
	}
	if len(report.Problems) > 0 {
		return fmt.Errorf("%s: %v", name, report.Problems)
	}
	current, err := backup.Current(context.Background(), backup.Dir(d.target), name, filepath.Join(d.data(), name))
	if err == nil && !current {
		err = fmt.Errorf("%s differs from the target", name)
	}
	return err
}

// each calls fn for names, four at a time.
func (d *day) each(names []string, fn func(string) error) error {
	var all sync.WaitGroup
	errs := make([]error, 4)
	for g := range errs {
		all.Go(func() {
			for i := g; i < len(names) && errs[g] == nil; i += len(errs) {
				errs[g] = fn(names[i])
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
