// SPDX-License-Identifier: MIT

package sqlitevfs_test

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/ncruces/go-sqlite3"

	"github.com/ringside-io/ringside/sqlitevfs"
)

// The direct API of go-sqlite3 uses the same URI. PRAGMA ringside returns the VFS's
// settings for a database.
func Example_direct() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	db, err := sqlite3.Open("file:" + filepath.ToSlash(filepath.Join(dir, "app.db")) + "?vfs=ringside&prefetch=off")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := db.Exec("PRAGMA synchronous=full; CREATE TABLE greetings(text)"); err != nil {
		log.Fatal(err)
	}
	s, _, err := db.Prepare("PRAGMA ringside")
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	var stats sqlitevfs.Stats
	if s.Step() {
		err = json.Unmarshal(s.ColumnRawText(0), &stats)
	}
	if err != nil || s.Err() != nil {
		log.Fatal(err, s.Err())
	}
	fmt.Println(stats.VFS, filepath.Base(stats.Path), "prefetch", stats.Prefetch, stats.Syncs > 0)
	// Output: ringside app.db prefetch off true
}

// A VFS with the program's own options, under its own name.
func ExampleRegister() {
	if err := sqlitevfs.Register("quiet", sqlitevfs.Options{Prefetch: sqlitevfs.Off, PrefetchDepth: 1 << 20}); err != nil {
		fmt.Println(err)
	}
	if err := sqlitevfs.Register("quiet", sqlitevfs.Options{Prefetch: sqlitevfs.Off}); err != nil {
		fmt.Println(err)
	}
	db, err := sqlite3.Open("file:memory?mode=memory&vfs=quiet")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	fmt.Println(db.Exec("CREATE TABLE greetings(text)"))
	// Output:
	// sqlitevfs: Options.PrefetchDepth: 1048576 is not between 0 and 1024
	// <nil>
}
