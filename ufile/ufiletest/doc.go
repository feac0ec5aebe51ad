// SPDX-License-Identifier: MIT

// Package ufiletest is the suite that every file must pass which claims to
// behave like os.File.
//
// # Model
//
// os.File is the reference. Most tests are scripts: a list of calls that is
// performed twice, on files that os opens and on files that the implementation
// opens, each in a directory of its own. Counts, data, errors and the files
// left behind must agree. Errors agree when they have the same shape: a bare
// io.EOF, or a *fs.PathError of the same Op and Path, and a cause that matches
// the same sentinels, the same errno and, where there is no errno, the same
// text. An errno may be wrapped.
//
// The other tests are about what no transcript shows: many goroutines, closing
// under reads and writes, deadlines, and the conformance tests of the standard
// library.
//
// What a system or a file system lacks (named pipes, O_DIRECT) is skipped by
// name. Everything happens below t.TempDir. The tests do not run in parallel,
// as one of them changes a limit of the process.
package ufiletest
