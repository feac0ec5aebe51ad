// SPDX-License-Identifier: MIT

package limits

import (
	"os"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

func TestMain(m *testing.M) { os.Exit(ringtest.Main(m)) }

// inChild is ringtest.InChild, with enough descriptors for tests of other limits.
func inChild(t *testing.T, attr *syscall.SysProcAttr, env ...string) bool {
	t.Helper()
	ringtest.NeedFiles(t, 1024)
	return ringtest.InChild(t, attr, env...)
}

// directory returns a directory on a disk, if there is one.
func directory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "limits")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
