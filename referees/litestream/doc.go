// SPDX-License-Identifier: MIT

// Package litestream runs Litestream, the replicator of SQLite databases, on databases that
// sqlitevfs serves: in each mode, with a writer, and after a power cut. It compares the restored
// database with the original.
package litestream
