// SPDX-License-Identifier: MIT

package ufile_test

import (
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/reactor"
	"github.com/ringside-io/ringside/ufile"
	"github.com/ringside-io/ringside/ufile/ufiletest"
)

// opener opens files of a system for the suite.
func opener(s *ufile.System) func(string, int, fs.FileMode) (ufiletest.File, error) {
	return func(name string, flag int, perm fs.FileMode) (ufiletest.File, error) {
		f, err := s.OpenFile(name, flag, perm)
		if err != nil {
			return nil, err
		}
		return f, nil
	}
}

// TestSuite compares each mode with os.File.
// Promise: ufile/os-file-s
func TestSuite(t *testing.T) {
	overModes(t, func(t *testing.T, s *ufile.System) {
		once := "/ring" // where there is no ring, the backend to which auto falls back
		if features.HaveIOURing() != nil {
			once = "/auto"
		}
		if testing.Short() && !strings.HasSuffix(t.Name(), once) {
			t.Skip("runs the suite again, with system calls as os.File makes them: not with -short")
		}
		if !ringtest.Long() && strings.HasSuffix(t.Name(), "/plain") {
			t.Skip("makes the calls of the mode auto: only with RINGSIDE_LONG=1")
		}
		ufiletest.Run(t, opener(s))
	})
}

// TestSuiteOnATinyRing runs the suite on a ring so small that operations wait for entries.
// Promise: ufile/os-file-s
func TestSuiteOnATinyRing(t *testing.T) {
	if !ringtest.Long() {
		t.Skip("runs the suite again: only with RINGSIDE_LONG=1")
	}
	s := newSystem(t, ufile.Options{Mode: ufile.ModeRing, Restrict: true,
		Reactor: reactor.Options{Loops: 1, Entries: 2, InFlight: 3}})
	ufiletest.Run(t, opener(s))
}

// TestSuiteOnOpenedFiles passes files that package os opened to the default System.
// Promise: ufile/os-file-s
func TestSuiteOnOpenedFiles(t *testing.T) {
	if !ringtest.Long() {
		t.Skip("runs the suite again: only with RINGSIDE_LONG=1")
	}
	ufiletest.Run(t, func(name string, flag int, perm fs.FileMode) (ufiletest.File, error) {
		f, err := os.OpenFile(name, flag, perm)
		if err != nil {
			return nil, err
		}
		u, err := ufile.NewFile(f)
		if err != nil {
			return nil, err
		}
		return u, nil
	})
}

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

// TestRootSuite compares a Root with os.Root.
// Promise: ufile/root-opens-creates
func TestRootSuite(t *testing.T) {
	part, parts := 0, len(modes) // names do not go through rings: each mode runs a part of the suite
	// With the race detector each part is slow, and one goroutine runs it.
	switch {
	case raceEnabled:
		parts *= ringtest.Rounds(4, 8)
	case testing.Short():
		parts *= 4
	}
	overModes(t, func(t *testing.T, s *ufile.System) {
		onceWithShort(t)
		ufiletest.RunRootPart(t, rootOpener(s), part, parts)
		part++
	})
}

// TestDirFSSuite compares DirFS with os.DirFS.
func TestDirFSSuite(t *testing.T) {
	overModes(t, func(t *testing.T, s *ufile.System) {
		onceWithShort(t)
		ufiletest.RunDirFS(t, s.DirFS)
	})
}

// onceWithShort skips all modes but one for operations that do not go through rings.
func onceWithShort(t *testing.T) {
	t.Helper()
	if testing.Short() && !strings.HasSuffix(t.Name(), "/auto") {
		t.Skip("makes the same calls as the mode auto: not with -short")
	}
}
