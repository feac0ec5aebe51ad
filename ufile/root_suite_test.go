// SPDX-License-Identifier: MIT

package ufile_test

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/ufile"
	"github.com/ringside-io/ringside/ufile/ufiletest"
)

// suiteRoot is a Root for the suite.
type suiteRoot struct{ *ufile.Root }

func (r suiteRoot) OpenFile(name string, flag int, perm fs.FileMode) (ufiletest.File, error) {
	f, err := r.Root.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (r suiteRoot) OpenRoot(name string) (ufiletest.Root, error) {
	sub, err := r.Root.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	return suiteRoot{sub}, nil
}

// rootOpener opens Roots of a system for the suite.
func rootOpener(s *ufile.System) func(string) (ufiletest.Root, error) {
	return func(dir string) (ufiletest.Root, error) {
		r, err := s.OpenRoot(dir)
		if err != nil {
			return nil, err
		}
		return suiteRoot{r}, nil
	}
}

// TestRootSuite holds a Root against os.Root.
func TestRootSuite(t *testing.T) {
	part, parts := 0, len(modes) // names do not go through rings: the modes share the work
	if raceEnabled || testing.Short() {
		parts *= 4 // each is slow then, and one goroutine does them
	}
	overModes(t, func(t *testing.T, s *ufile.System) {
		onceWithShort(t)
		ufiletest.RunRootPart(t, rootOpener(s), part, parts)
		part++
	})
}

// TestDirFSSuite holds DirFS against os.DirFS.
func TestDirFSSuite(t *testing.T) {
	overModes(t, func(t *testing.T, s *ufile.System) {
		onceWithShort(t)
		ufiletest.RunDirFS(t, s.DirFS)
	})
}

// onceWithShort skips all modes but one of what does not go through rings.
func onceWithShort(t *testing.T) {
	t.Helper()
	if testing.Short() && !strings.HasSuffix(t.Name(), "/auto") {
		t.Skip("the calls that the mode auto makes, too: without -short")
	}
}
