// SPDX-License-Identifier: MIT

package ufiletest

import (
	"os"
	"testing"
)

// TestOS checks that package os passes the suite, so that the suite demands nothing else.
func TestOS(t *testing.T) {
	notShort(t)
	Run(t, OS)
}

func TestOSRoot(t *testing.T) {
	notShort(t)
	RunRootPart(t, OSRoot, 0, 8)
}

// notShort skips tests that check the suite rather than ringside.
func notShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("checks package os: not with -short")
	}
}

func TestOSDirFS(t *testing.T) { RunDirFS(t, os.DirFS) }
