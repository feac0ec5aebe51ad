// SPDX-License-Identifier: MIT

package ufiletest

import (
	"os"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// TestOS checks that package os passes the suite, so that the suite demands nothing else.
func TestOS(t *testing.T) {
	notShort(t)
	Run(t, OS)
}

func TestOSRoot(t *testing.T) {
	notShort(t)
	RunRootPart(t, OSRoot, 0, ringtest.Rounds(8, 32))
}

// notShort skips tests that check the suite rather than ringside.
func notShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("checks package os: not with -short")
	}
}

func TestOSDirFS(t *testing.T) { RunDirFS(t, os.DirFS) }
