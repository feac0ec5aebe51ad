// SPDX-License-Identifier: MIT

// Package datafile makes the files that benchmarks read, and cleans up after runs that died.
//
// A file is written in units of [UnitSize] bytes. Each unit carries the seed of its file, its own
// offset and a checksum over pseudo-random content, so a reader can tell that it received the
// right bytes, and neither a device nor a file system can compress or deduplicate them.
//
// While its owner lives a file is locked with flock. A file with the recognisable name of
// [Pattern] that is not locked was left by a process that was killed; [Sweep] removes it.
package datafile
