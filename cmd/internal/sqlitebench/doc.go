// SPDX-License-Identifier: MIT

// Package sqlitebench measures SQLite: the 16 tests of its old speed page, commits of many databases,
// and reads of a database that is not in the page cache.
//
// What is compared are ways to reach the disk, so every engine is driven in the same way: statement by
// statement through its connection, without a pool between.
package sqlitebench
