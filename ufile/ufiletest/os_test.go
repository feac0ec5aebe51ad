// SPDX-License-Identifier: MIT

package ufiletest

import (
	"os"
	"testing"
)

func TestOS(t *testing.T) { Run(t, OS) }

func TestOSRoot(t *testing.T) { RunRootPart(t, OSRoot, 0, 8) }

func TestOSDirFS(t *testing.T) { RunDirFS(t, os.DirFS) }
