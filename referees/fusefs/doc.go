// SPDX-License-Identifier: MIT

// Package fusefs mounts a file system in user space whose files are slow, silent, short, failing or
// growing, with and without the page cache. Tests compare ufile with os.File on it, and on every
// other file system that they can mount.
//
// The server is a process of its own, because the process under test may freeze.
package fusefs
