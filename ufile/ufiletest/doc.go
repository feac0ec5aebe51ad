// SPDX-License-Identifier: MIT

// Package ufiletest is a test suite for implementations of files that are meant to
// behave like os.File.
//
// # Model
//
// os.File is the reference. Most tests are scripts. A script is a list of calls. The
// suite makes them twice, in separate directories: on files that package os opened, and
// on files that the implementation opened. Counts, data, errors and the files left behind
// must agree. Two errors agree if both are io.EOF itself, or if both are a *fs.PathError
// with the same Op and Path whose causes agree. Two causes agree if they match the same
// sentinel errors and have the same errno, which may be wrapped. Causes without an errno
// must have the same text.
//
// The other tests use many goroutines, close files during reads and writes, set
// deadlines, and run the conformance tests of the standard library.
//
// If the system or the file system lacks a feature that a test needs, such as named pipes
// or O_DIRECT, the test is skipped and names the feature. All files are created below
// t.TempDir. The tests do not run in parallel, because one of them changes a resource
// limit of the process.
package ufiletest
