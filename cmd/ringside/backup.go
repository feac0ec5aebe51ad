// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/ringside-io/ringside/cmd/internal/progress"
	"github.com/ringside-io/ringside/sqlitevfs/backup"
	"github.com/ringside-io/ringside/sqlitevfs/backup/s3"
)

const backupLong = `backup shows, checks and restores what package sqlitevfs/backup has stored of SQLite databases.

A TARGET is a directory, or a bucket: s3://BUCKET/PREFIX, with ?endpoint=URL for a store that is not Amazon's, and
&region=NAME. The credentials are those of the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY), of
~/.aws/credentials, or of the machine's role.

  ls       list the databases of a target, or the objects of one
  status   report for each database the newest object, gaps, and whether it has the newest commit
  verify   read all objects and compare their checksums
  restore  write databases as they were at the newest object, or at a time

The backup may run meanwhile.`

// newBackupCmd returns "ringside backup".
func newBackupCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "backup",
		Short:   "List, check or restore a backup of SQLite databases",
		Long:    backupLong,
		Example: "  ringside backup status /backup\n  ringside backup restore 's3://bucket/app?region=eu-west-1' restored",
		Args:    noArgs,
		RunE:    showHelp,
	}
	cmd.AddCommand(newBackupLsCmd(), newBackupStatusCmd(), newBackupVerifyCmd(), newBackupRestoreCmd())
	return cmd
}

// backupRun is a run of a subcommand.
type backupRun struct {
	cmd      *cobra.Command
	out      io.Writer
	name     string // of the target
	target   backup.Target
	asJSON   bool
	parallel int
}

// backupCmd adds to a subcommand what all of them have. Its first argument is a target. do gets the others: least to most
// of them.
func backupCmd(least, most int, cmd *cobra.Command, do func(r *backupRun, args []string) error) *cobra.Command {
	var asJSON bool
	var parallel int
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if n := len(args) - 1; least <= n && n <= most {
			return nil
		}
		_, takes, _ := strings.Cut(cmd.Use, " ")
		return usagef("%s takes %s, got %d arguments: see the examples", shortPath(cmd), takes, len(args))
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if parallel < 1 {
			return usagef("--parallel %d: must be at least 1", parallel)
		}
		t, err := s3.ParseTarget(args[0])
		if err != nil {
			return usagef("%s: %v", shortPath(cmd), err)
		}
		if dir, ok := t.(backup.Dir); ok {
			if err := wantDirectory(shortPath(cmd), string(dir)); err != nil {
				return err
			}
		}
		r := &backupRun{cmd, cmd.OutOrStdout(), args[0], t, asJSON, parallel}
		return do(r, args[1:])
	}
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		return completeTarget(cmd, args, least, most)
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().IntVar(&parallel, "parallel", 8, "how many databases are read at a time")
	return cmd
}

// completeTarget completes directories for the target and for the arguments that must follow it, and
// names of databases for the others.
func completeTarget(cmd *cobra.Command, args []string, least, most int) ([]string, cobra.ShellCompDirective) {
	dirs := 1 + least
	if len(args) < dirs {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	if len(args) > most || strings.Contains(args[0], "://") {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	all, _ := backup.Databases(cmd.Context(), backup.Dir(args[0]))
	for _, r := range all {
		if !slices.Contains(args[dirs:], r.Name) {
			names = append(names, r.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// databases returns the databases of the target: those of the names, or all if there are none.
func (r *backupRun) databases(names []string) ([]backup.Report, error) {
	all, err := backup.Databases(r.cmd.Context(), r.target)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.name, err)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no backup of a database: name the target that the backup has", r.name)
	}
	if len(names) == 0 {
		return all, nil
	}
	var chosen []backup.Report
	for _, name := range names {
		i := slices.IndexFunc(all, func(b backup.Report) bool { return b.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("%s has no database %q: 'ringside backup ls' lists them", r.name, name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// each calls do for each database, some at a time, and shows the progress.
func (r *backupRun) each(dbs []backup.Report, what string, do func(ctx context.Context, i int) error) error {
	bar := r.bar(len(dbs), what)
	defer bar.Close()
	group, ctx := errgroup.WithContext(r.cmd.Context())
	group.SetLimit(r.parallel)
	for i := range dbs {
		group.Go(func() error {
			defer bar.Add(1)
			if err := do(ctx, i); err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// bar returns a bar on a terminal, and nil elsewhere.
func (r *backupRun) bar(steps int, what string) *progress.Bar {
	stderr := r.cmd.ErrOrStderr()
	if !isTerminal(stderr) {
		return nil
	}
	bar := progress.New(stderr)
	bar.Start(int64(steps), what)
	return bar
}

// table prints lines of columns.
func (r *backupRun) table(lines [][]string) error {
	w := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', 0)
	for _, line := range lines {
		fmt.Fprintln(w, strings.Join(line, "\t"))
	}
	return w.Flush()
}

func newBackupLsCmd() *cobra.Command {
	return backupCmd(0, 1, &cobra.Command{
		Use:   "ls TARGET [DATABASE]",
		Short: "List the databases of a backup, or the objects of one",
		Long: "ls lists the databases of a target: the newest transaction and its time, the objects, and their size. With a database it\n" +
			"lists the objects. Level 0 has the commits of an interval each, higher levels merge those before, and level 9 has\n" +
			"snapshots. It reads no object.\n\nExit codes: 0 listed, 1 the target cannot be read or has no such database, 2 bad arguments.",
		Example: "  ringside backup ls /backup\n  ringside backup ls s3://bucket/app tenants/42.db",
	}, func(r *backupRun, args []string) error {
		dbs, err := r.databases(args)
		if err != nil {
			return err
		}
		if len(args) == 1 {
			return r.listObjects(args[0])
		}
		if r.asJSON {
			return writeJSON(r.out, dbs)
		}
		lines := [][]string{{"DATABASE", "TRANSACTION", "TIME", "OBJECTS", "SIZE"}}
		for _, d := range dbs {
			lines = append(lines, []string{d.Name, fmt.Sprint(d.TXID), when(d.Last), fmt.Sprint(d.Objects), size(d.Bytes)})
		}
		return r.table(lines)
	})
}

func (r *backupRun) listObjects(database string) error {
	files, err := backup.Files(r.cmd.Context(), r.target, database)
	if err != nil {
		return fmt.Errorf("%s: %w", r.name, err)
	}
	if r.asJSON {
		return writeJSON(r.out, files)
	}
	lines := [][]string{{"LEVEL", "TRANSACTIONS", "TIME", "SIZE", "OBJECT"}}
	for _, f := range files {
		lines = append(lines, []string{
			fmt.Sprint(f.Level), fmt.Sprintf("%d-%d", f.Min, f.Max), when(f.Time), size(f.Size), f.Object(database),
		})
	}
	return r.table(lines)
}

func when(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

func size(n int64) string { return humanize.IBytes(uint64(n)) }

// newBackupStatusCmd returns "ringside backup status".
func newBackupStatusCmd() *cobra.Command {
	var dir string
	cmd := backupCmd(0, 0, &cobra.Command{
		Use:   "status TARGET",
		Short: "Report the newest object of each database, gaps, and missing commits",
		Long: "status reports for each database of a target the newest transaction that can be restored, its age, and gaps. With --dir\n" +
			"it compares each database below that directory with the target, and reports those whose commits the target lacks,\n" +
			"and those that it does not have. A database that commits meanwhile is behind by the interval of its backup.\n\n" +
			"Exit codes: 0 whole, 1 a gap, or with --dir a missing commit, 2 bad arguments.",
		Example: "  ringside backup status /backup\n  ringside backup status --dir /var/lib/app s3://bucket/app",
	}, func(r *backupRun, _ []string) error {
		if r.cmd.Flags().Changed("dir") && dir == "" {
			return usagef("%s: --dir is empty: name a directory, such as . for this one", shortPath(r.cmd))
		}
		if err := wantDirectory("--dir", dir); err != nil {
			return err
		}
		dbs, err := r.databases(nil)
		if err != nil {
			return err
		}
		all := make([]backupStatus, len(dbs))
		err = r.each(dbs, "comparing databases", func(ctx context.Context, i int) error {
			all[i] = backupStatus{Report: dbs[i], Age: time.Since(dbs[i].Last).Round(time.Second).Seconds()}
			return all[i].compare(ctx, r.target, dir)
		})
		if err == nil && dir != "" {
			all, err = withMissing(all, dbs, dir)
		}
		if err != nil {
			return err
		}
		return r.printStatus(all)
	})
	cmd.Flags().StringVar(&dir, "dir", "", "the `directory` of the databases, to compare them")
	return cmd
}

// backupStatus is the state of the backup of a database.
type backupStatus struct {
	backup.Report
	Age   float64 `json:"age"`             // seconds since the newest object
	State string  `json:"state,omitempty"` // compared with the database
}

// States of a database beside its backup.
const (
	stateCurrent = "has all commits"
	stateBehind  = "lacks commits"
	stateGone    = "only in the backup"
	stateMissing = "not in the backup"
)

// compare sets the state, if there is a directory of databases.
func (s *backupStatus) compare(ctx context.Context, t backup.Target, dir string) error {
	if dir == "" || len(s.Problems) > 0 {
		return nil
	}
	same, err := backup.Current(ctx, t, s.Name, filepath.Join(dir, filepath.FromSlash(s.Name)))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.State, err = stateGone, nil
	case err == nil && same:
		s.State = stateCurrent
	case err == nil:
		s.State = stateBehind
	}
	return err
}

// withMissing adds the databases of a directory that the target does not have.
func withMissing(all []backupStatus, stored []backup.Report, dir string) ([]backupStatus, error) {
	missing, err := backup.Missing(dir, stored)
	for _, name := range missing {
		all = append(all, backupStatus{Report: backup.Report{Name: name}, State: stateMissing})
	}
	slices.SortFunc(all, func(a, b backupStatus) int { return strings.Compare(a.Name, b.Name) })
	return all, err
}

func (r *backupRun) printStatus(all []backupStatus) error {
	failed := false
	lines := [][]string{{"DATABASE", "TRANSACTION", "AGE", "STATE"}}
	for _, s := range all {
		failed = failed || len(s.Problems) > 0 || s.State == stateBehind || s.State == stateMissing
		age := (time.Duration(s.Age) * time.Second).String()
		if s.TXID == 0 {
			age = "-"
		}
		state := s.State
		if len(s.Problems) > 0 {
			state = strings.Join(s.Problems, "; ")
		}
		lines = append(lines, []string{s.Name, fmt.Sprint(s.TXID), age, state})
	}
	err := error(nil)
	if r.asJSON {
		err = writeJSON(r.out, all)
	} else {
		err = r.table(lines)
	}
	if err == nil && failed {
		err = exitStatus(exitFailure)
	}
	return err
}

func newBackupVerifyCmd() *cobra.Command {
	return backupCmd(0, math.MaxInt, &cobra.Command{
		Use:   "verify TARGET [DATABASE]...",
		Short: "Read all objects of a backup and compare their checksums",
		Long: "verify reads every object of the named databases, or of all, and compares the checksums of pages, objects and states. It\n" +
			"reports objects that are lost, damaged, exchanged or copied, also if only older states need them. It changes nothing.\n\n" +
			"Exit codes: 0 whole, 1 a problem or an unreadable target, 2 bad arguments.",
		Example: "  ringside backup verify /backup\n  ringside backup verify s3://bucket/app tenants/42.db",
	}, func(r *backupRun, args []string) error {
		dbs, err := r.databases(args)
		if err != nil {
			return err
		}
		err = r.each(dbs, "reading databases", func(ctx context.Context, i int) (err error) {
			dbs[i], err = backup.Verify(ctx, r.target, dbs[i].Name)
			return err
		})
		if err != nil {
			return err
		}
		return r.printVerified(dbs)
	})
}

func (r *backupRun) printVerified(dbs []backup.Report) error {
	var objects, problems int
	var bytes int64
	for _, d := range dbs {
		objects, bytes, problems = objects+d.Objects, bytes+d.Bytes, problems+len(d.Problems)
	}
	if r.asJSON {
		if err := writeJSON(r.out, dbs); err != nil {
			return err
		}
	} else {
		for _, d := range dbs {
			for _, p := range d.Problems {
				fmt.Fprintf(r.out, "%s: %s\n", d.Name, p)
			}
		}
		fmt.Fprintf(r.out, "%d databases, %d objects, %s: %d problems\n", len(dbs), objects, size(bytes), problems)
	}
	if problems > 0 {
		return exitStatus(exitFailure)
	}
	return nil
}

// newBackupRestoreCmd returns "ringside backup restore".
func newBackupRestoreCmd() *cobra.Command {
	var before string
	cmd := backupCmd(1, math.MaxInt, &cobra.Command{
		Use:   "restore TARGET DIR [DATABASE]...",
		Short: "Write databases as the backup has them",
		Long: "restore writes the named databases, or all that are not deleted, below a directory, which is made if it is missing. It\n" +
			"writes nothing if one of the files exists. Checksums of all pages and of each database are compared, and the files are durable\n" +
			"at the end. A database that cannot be restored does not keep others from it.\n\n" +
			"With --before it writes the newest state whose commits were made before a time. It is exact to the interval of\n" +
			"the backup (750 ms), then to 30 seconds, 5 minutes and an hour, and older states go after a day by default.\n\n" +
			"Exit codes: 0 restored, 1 some are not, 2 bad arguments, 130 interrupted.",
		Example: "  ringside backup restore /backup restored\n" +
			"  ringside backup restore --before 2026-11-27T08:30:00Z s3://bucket/app restored tenants/42.db\n" +
			"  ringside backup restore --before 90m /backup restored # as it was 90 minutes ago",
	}, func(r *backupRun, args []string) error {
		if args[0] == "" {
			return usagef("%s: DIR is empty: name a directory, such as . for this one", shortPath(r.cmd))
		}
		o := backup.RestoreOptions{Parallel: r.parallel}
		if r.cmd.Flags().Changed("before") {
			var err error
			if o.Before, err = parseTime(before, time.Now()); err != nil {
				return err
			}
		}
		dbs, err := r.databases(args[1:])
		if err != nil {
			return err
		}
		if len(args) == 1 {
			dbs = slices.DeleteFunc(dbs, func(d backup.Report) bool { return d.Gone(o.Before) })
		}
		return r.restore(dbs, args[0], o)
	})
	cmd.Flags().StringVar(&before, "before", "", "restore the newest state before a `time`: RFC 3339, or how long ago")
	return cmd
}

// parseTime parses a time as RFC 3339, or as a duration before now.
func parseTime(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return now.Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, usagef("--before %q: must be a time such as 2026-11-27T08:30:00Z, or how long ago, such as 90m", text)
	}
	return t, nil
}

// restoredDatabase is a line of the result.
type restoredDatabase struct {
	Name  string `json:"name"`
	TXID  uint64 `json:"txid"`
	Error string `json:"error,omitempty"`
}

func (r *backupRun) restore(dbs []backup.Report, dir string, o backup.RestoreOptions) error {
	names := make([]string, len(dbs))
	for i, d := range dbs {
		names[i] = d.Name
	}
	bar := r.bar(len(dbs), "restoring databases")
	var mu sync.Mutex
	done, failed := []restoredDatabase{}, 0
	err := backup.RestoreAll(r.cmd.Context(), r.target, names, dir, o, func(name string, txid uint64, err error) {
		mu.Lock()
		defer mu.Unlock()
		bar.Add(1)
		d := restoredDatabase{Name: name, TXID: txid}
		if err != nil {
			d.Error, failed = strings.TrimPrefix(err.Error(), name+": "), failed+1
		}
		done = append(done, d)
	})
	bar.Close()
	if ctxErr := r.cmd.Context().Err(); ctxErr != nil {
		return fmt.Errorf("%d of %d databases are restored: %w", len(done)-failed, len(dbs), ctxErr)
	}
	if errors.Is(err, fs.ErrExist) && len(done) == 0 {
		return fmt.Errorf("%w: name an empty directory", err)
	}
	if err != nil && len(done) == 0 {
		return err
	}
	slices.SortFunc(done, func(a, b restoredDatabase) int { return strings.Compare(a.Name, b.Name) })
	return r.printRestored(done, failed)
}

func (r *backupRun) printRestored(done []restoredDatabase, failed int) error {
	if r.asJSON {
		if err := writeJSON(r.out, done); err != nil {
			return err
		}
	} else {
		for _, d := range done {
			if d.Error != "" {
				fmt.Fprintf(r.out, "%s: not restored: %s\n", d.Name, d.Error)
			} else if len(done) <= 20 {
				fmt.Fprintf(r.out, "%s: transaction %d\n", d.Name, d.TXID)
			}
		}
		fmt.Fprintf(r.out, "%d of %d databases are restored\n", len(done)-failed, len(done))
	}
	if failed > 0 {
		return exitStatus(exitFailure)
	}
	return nil
}
