// SPDX-License-Identifier: MIT

package replica

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ncruces/go-sqlite3"
)

// ErrFile is returned for SQL that would open files beside the database: ATTACH, VACUUM INTO, and pragmas that
// set directories. Such a file is on one node only, is not replicated, and may be
// one of another database.
var ErrFile = errors.New("replica: SQL must not open other files")

var errOwnTx = errors.New("replica: BEGIN, COMMIT and ROLLBACK are not possible as statements within a transaction of database/sql: use the methods of sql.Tx, or savepoints")

// authorize is SQLite's authorizer for the connection. SQLite calls it while it prepares a statement.
func (k *conn) authorize(action sqlite3.AuthorizerActionCode, name, _, _, _ string) sqlite3.AuthorizerReturnCode {
	var err error
	switch action {
	case sqlite3.AUTH_ATTACH:
		// VACUUM attaches a temporary database. An ATTACH whose name is no literal has no name here either,
		// and its text has the keyword.
		if name != "" || k.attaches {
			err = fmt.Errorf("%w: ATTACH and VACUUM INTO are refused, use Node.Open for another database, and Node.Backup for copies", ErrFile)
		}
	case sqlite3.AUTH_PRAGMA:
		switch strings.ToLower(name) {
		case "temp_store_directory", "data_store_directory":
			err = fmt.Errorf("%w: PRAGMA %s is refused", ErrFile, name)
		}
	case sqlite3.AUTH_TRANSACTION:
		if k.inTx && !k.ending {
			err = errOwnTx
		}
	}
	if err == nil {
		return sqlite3.AUTH_OK
	}
	k.failure.Store(&err)
	return sqlite3.AUTH_DENY
}

// willPrepare notes the text of which SQLite prepares statements next. k.mu is locked.
func (k *conn) willPrepare(query string) {
	k.attaches = strings.Contains(strings.ToUpper(query), "ATTACH")
}
