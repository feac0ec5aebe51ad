// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs"
)

// uri names a database of a VFS, with parameters as key, value, ….
func uri(path, vfsName string, params ...string) string {
	q := url.Values{"vfs": {vfsName}}
	for i := 0; i < len(params); i += 2 {
		q.Add(params[i], params[i+1])
	}
	return "file:" + filepath.ToSlash(path) + "?" + q.Encode()
}

func dbFile(t testing.TB) string { return filepath.Join(t.TempDir(), "test.db") }

// connect opens a connection; the end of the test closes it.
func connect(t testing.TB, path, vfsName string, params ...string) *sqlite3.Conn {
	t.Helper()
	c, err := sqlite3.Open(uri(path, vfsName, params...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	execSQL(t, c, "PRAGMA busy_timeout=10000")
	return c
}

func execSQL(t testing.TB, c *sqlite3.Conn, sql string) {
	t.Helper()
	if err := c.Exec(sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// query returns the first column of the first row as text.
func query(t testing.TB, c *sqlite3.Conn, sql string) string {
	t.Helper()
	s, _, err := c.Prepare(sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	defer s.Close()
	text := ""
	if s.Step() {
		text = s.ColumnText(0)
	}
	if err := s.Err(); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return text
}

func wantQuery(t testing.TB, c *sqlite3.Conn, sql, want string) {
	t.Helper()
	if got := query(t, c, sql); got != want {
		t.Errorf("%s: %q, want %q", sql, got, want)
	}
}

// register registers a VFS under the test's name; the end of the test unregisters it.
func register(t testing.TB, o Options) string {
	t.Helper()
	name := "test-" + t.Name()
	if err := Register(name, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { vfs.Unregister(name) })
	return name
}
func fileSize(t testing.TB, path string) int64 {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return st.Size()
}

// statsOf returns the counts of an open database.
func statsOf(path string) Stats {
	for _, s := range Databases() {
		if s.Path == path {
			return s
		}
	}
	return Stats{}
}
