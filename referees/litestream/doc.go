// SPDX-License-Identifier: MIT

// Package litestream runs Litestream, the replicator of SQLite databases, beside
// databases that sqlitevfs serves: in each mode, with a writer, and after a power
// cut. What it restores is compared with the database.
package litestream
