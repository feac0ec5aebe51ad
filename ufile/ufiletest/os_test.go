// SPDX-License-Identifier: MIT

package ufiletest

import (
	"os"
	"testing"
)

// TestOS has package os pass the suite, so that the suite asks for nothing else.
func TestOS(t *testing.T) {
	notShort(t)
	Run(t, OS)
}

func TestOSRoot(t *testing.T) {
	notShort(t)
	RunRootPart(t, OSRoot, 0, 8)
}

// notShort leaves out what judges the suite and not ringside.
func notShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("what package os answers: without -short")
	}
}

func TestOSDirFS(t *testing.T) { RunDirFS(t, os.DirFS) }
