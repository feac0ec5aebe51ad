// SPDX-License-Identifier: MIT

package workload

import (
	"testing"

	"golang.org/x/sys/unix"
)

// accountsReads reports whether the file is on a file system on which each read of a block
// device is accounted to the process. A file system in memory has no such reads; a network
// file system may account them otherwise.
func accountsReads(t *testing.T, path string) bool {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Type == unix.EXT4_SUPER_MAGIC || st.Type == unix.XFS_SUPER_MAGIC
}
