// SPDX-License-Identifier: MIT

package replica

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestSQLOpensNoFiles: no statement opens a file beside the database, on the leader, forwarded, or on a
// connection with Stale. VACUUM works, although it attaches a temporary database.
//
// Promise: replica/sql-opens-no-files
func TestSQLOpensNoFiles(t *testing.T) {
	c := newCluster(t, 3, Options{Forward: true})
	leader, follower := c.leader(), c.followers()[0]
	execAll(t, open(t, leader, "other.db"), "CREATE TABLE t(x)", "INSERT INTO t VALUES(1)")
	execAll(t, open(t, leader, "db"), "CREATE TABLE t(x)", "INSERT INTO t VALUES(1)")
	caughtUp(t, c.leader(), "db", follower) // leader may have been deposed, and forward
	dir := t.TempDir()
	file := filepath.Join(dir, "made")
	names := []string{file, "file:" + file + "?vfs=os", filepath.Join(leader.catalog.data, "other.db"), "file:" + filepath.Join(follower.catalog.data, "other.db") + "?vfs=os"}
	type statement struct {
		query string
		args  []any
	}
	var statements []statement
	for _, name := range names {
		for _, q := range []string{"ATTACH '%s' AS p", "attach database '%s' as p", "/* VACUUM */ ATTACH '%s' AS p", "VACUUM INTO '%s'", "VACUUM main INTO '%s'",
			"ATTACH '%s'||'' AS p", "ATTACH (SELECT '%s') AS p", "VACUUM INTO lower('%s')", "PRAGMA temp_store_directory='%s'", "PRAGMA Data_Store_Directory='%s'"} {
			statements = append(statements, statement{query: fmt.Sprintf(q, name)})
		}
		statements = append(statements, statement{"ATTACH ? AS p", []any{name}}, statement{"ATTACH DATABASE :name AS p", []any{sql.Named("name", name)}}, statement{"VACUUM INTO ?", []any{name}})
	}
	for what, db := range map[string]*sql.DB{"leader": open(t, leader, "db"), "forwarded": open(t, follower, "db"), "stale": open(t, follower, "db", Stale(-1))} {
		for _, s := range statements {
			_, err := db.ExecContext(t.Context(), s.query, s.args...)
			if !errors.Is(err, ErrFile) {
				t.Errorf("%s: %s: %v", what, s.query, err)
			}
			if rows, err := db.QueryContext(t.Context(), s.query, s.args...); err == nil {
				for rows.Next() {
				}
				if errors.Join(rows.Err(), rows.Close()) == nil {
					t.Errorf("%s: a query of %s has no error", what, s.query)
				}
			}
		}
		if made, err := os.ReadDir(dir); err != nil || len(made) > 0 {
			t.Fatalf("%s: a file was made: %v, %v", what, made, err)
		}
		if what != "stale" {
			execAll(t, db, "VACUUM", " -- a comment\n vacuum main", "SAVEPOINT s; INSERT INTO t VALUES(2); RELEASE s", "PRAGMA incremental_vacuum")
		}
		if got := value(t, db, "SELECT count(*) FROM t WHERE x=1"); got != "1" {
			t.Errorf("%s: %s rows", what, got)
		}
	}
	c.judge()
}

// TestCommitAsStatement: within a transaction of database/sql a statement cannot end it, and Do commits nothing.
//
// Promise: replica/commit-as-statement
func TestCommitAsStatement(t *testing.T) {
	c := newCluster(t, 3, Options{})
	execAll(t, open(t, c.leader(), "db"), "CREATE TABLE t(x)")
	for _, n := range []*Node{c.leader(), c.followers()[0]} {
		for _, end := range []string{"COMMIT", "END", "ROLLBACK", "BEGIN"} {
			err := n.Do(t.Context(), "db", func(tx *sql.Tx) error {
				_, err := tx.Exec("INSERT INTO t VALUES(1); " + end)
				return err
			})
			if err == nil {
				t.Errorf("%s on %s: no error", end, n.ID())
			}
		}
	}
	if got := value(t, open(t, c.leader(), "db"), "SELECT count(*) FROM t"); got != "0" {
		t.Errorf("%s rows were committed", got)
	}
}
