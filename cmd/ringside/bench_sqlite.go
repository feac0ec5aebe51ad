// SPDX-License-Identifier: MIT

package main

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/cmd/internal/suite"
)

const benchSQLiteLong = `sqlite compares SQLite over package sqlitevfs with the default VFS and with other libraries, with
synchronous=FULL throughout, except with --journal wal-normal. --workload selects from

  speed    the 16 tests of SQLite's old speed page, in one new database for each round: rollback
           (journal_mode=DELETE) and WAL
  tenants  commits of one row: 1, 4, 16 and 64 databases with a connection each, then 4 and 16
           connections to one database, with journal_mode=PERSIST and WAL; in WAL mode also commits
           of an order with five lines, and of a blob of 60 KB; 16 databases in WAL mode with
           synchronous=NORMAL
  cold     a database of about 60 MiB that is not in the page cache: a scan, CREATE INDEX, 10 % of the
           keys and single lookups where rows came in random order, and a scan where they came in order

Without --workload tenants and cold are measured in a few cells. Connections to one database are measured
for five times --duration: a connection that finds the database locked sleeps for a long time, and a measurement ends when
the last one has woken.

Engines:

  memory              a database in memory
  default             github.com/ncruces/go-sqlite3 with its default VFS
  ringside            the same with vfs=ringside; the others of this name differ in one part
  ringside-plain      the default VFS with the syncs of directories that it leaves out
  ringside-nodirsync  ringside without syncs of directories, like the default VFS
  ringside-group      group sync always
  ringside-log        the log that databases share
  modernc             modernc.org/sqlite (with -tags peers)
  mattn               github.com/mattn/go-sqlite3 (with cgo, a C compiler and -tags peers)

Every statement goes through one connection, without a pool between. Ratios are those to the default VFS with
the same journal. Times do not include closing a database.

Written data is checked: acknowledged rows are counted, and sums are compared. Databases are created
in --dir (default: $TMPDIR, else /var/tmp) and are removed at the end. --scale is the percentage of
statements and rows.`

const benchSQLiteExample = `  ringside bench sqlite
  ringside bench sqlite --workload speed --json sqlite-speed.json
  ringside bench sqlite --workload tenants --databases 16,64 --journal wal --duration 1s
  ringside bench sqlite --workload cold --cold scan,contiguous --engine default,ringside
  go run -tags peers ./cmd/ringside bench sqlite`

// newBenchSQLiteCmd returns "ringside bench sqlite".
func newBenchSQLiteCmd() *cobra.Command {
	b := &sqliteBench{}
	return newSuiteCmd("sqlite", "Measure SQLite over sqlitevfs, the default VFS and other libraries", benchSQLiteLong, benchSQLiteExample, suite.SQLiteWords(), b, func(f *pflag.FlagSet) {
		f.StringVar(&b.Dir, "dir", "", "create databases in this `directory`")
		f.StringSliceVar(&b.Workloads, "workload", nil, "what is measured in full: speed, tenants, cold (default: all, briefly)")
		f.StringSliceVar(&b.Engines, "engine", nil, "engines to measure; others are compared to the first of the list above")
		f.IntSliceVar(&b.Databases, "databases", nil, "numbers of databases, such as 1,16")
		f.IntSliceVar(&b.Connections, "connections", nil, "numbers of connections to one database, such as 4,16")
		f.StringSliceVar(&b.Journals, "journal", nil, "journal modes: rollback, persist, delete-extra (synchronous=EXTRA), wal, wal-normal (synchronous=NORMAL)")
		f.StringSliceVar(&b.Commits, "commit", nil, "what a commit of tenants writes: row, order, blob")
		f.StringSliceVar(&b.Cold, "cold", nil, "what is read cold: scan, index, range, lookups, contiguous, norowid, 16k")
		f.IntVar(&b.Scale, "scale", 100, "`percent` of the statements and rows")
	})
}

// sqliteBench is the suite "sqlite".
type sqliteBench struct{ suite.SQLiteOptions }

func (b *sqliteBench) configure(flags *benchFlags) error {
	b.Timing, b.Seed = flags.Timing, flags.seed
	if b.Scale == 0 {
		return usagef("--scale 0: must be between 1 and 1000")
	}
	return b.Validate()
}

func (b *sqliteBench) measure(ctx context.Context, env suite.Env) (*report.Run, error) {
	return suite.SQLite(ctx, b.SQLiteOptions, env)
}
