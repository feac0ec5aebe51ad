// SPDX-License-Identifier: MIT

// Package ufiletest is a test suite for implementations of files that are meant to
// behave like os.File.
//
// # Model
//
// os.File is the reference. Most tests are scripts. A script is a list of calls that the
// suite makes twice: on files that os opened and on files that the implementation opened,
// each in a separate directory. Counts, data, errors and the files
// left behind must agree. Two errors agree if both are io.EOF itself, or if both
// are a *fs.PathError with the same Op and Path and their causes agree. Causes agree if
// they match the same sentinel errors and the same errno or, if they have no errno, have
// the same text. An errno may be wrapped.
//
// The other tests use many goroutines, close files during reads and writes, set
// deadlines, and run the conformance tests of the standard library.
//
// A test that needs a feature which the system or the file system lacks, such as named
// pipes or O_DIRECT, is skipped and names the feature. All files are below t.TempDir. The
// tests do not run in parallel, because one of them changes a limit of the process.
package ufiletest
