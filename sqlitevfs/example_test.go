// SPDX-License-Identifier: MIT

package sqlitevfs_test

import (
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"

	_ "github.com/ncruces/go-sqlite3/driver"

	_ "github.com/ringside-io/ringside/sqlitevfs"
)

func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	db, err := sql.Open("sqlite3", "file:"+filepath.ToSlash(filepath.Join(dir, "app.db"))+
		"?vfs=ringside&_pragma=journal_mode(truncate)&_pragma=synchronous(full)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("CREATE TABLE greetings(text); INSERT INTO greetings VALUES('hello')"); err != nil {
		log.Fatal(err)
	}
	var text string
	if err := db.QueryRow("SELECT text FROM greetings").Scan(&text); err != nil {
		log.Fatal(err)
	}
	fmt.Println(text)
	// Output: hello
}
