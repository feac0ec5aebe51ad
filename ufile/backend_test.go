// SPDX-License-Identifier: MIT

package ufile_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/ufile"
)

func TestBackendGivesTheReason(t *testing.T) {
	overModes(t, func(t *testing.T, s *ufile.System) {
		name, reason := s.Backend()
		if (name == "io_uring") != (reason == "") || name != "io_uring" && name != "syscall" {
			t.Errorf("backend %q, reason %q", name, reason)
		}
	})
	if name, reason := newSystem(t, ufile.Options{Mode: ufile.ModeSyscall}).Backend(); name != "syscall" || reason == "" {
		t.Errorf("ModeSyscall: backend %q, reason %q", name, reason)
	}
	needRing(t)
	if name, reason := ufile.Backend(); name != "io_uring" {
		t.Errorf("backend %q although io_uring works: %s", name, reason)
	}
}

func TestModeHasAName(t *testing.T) {
	for m, want := range map[ufile.Mode]string{ufile.ModeAuto: "auto", ufile.ModeRing: "ring", ufile.ModeSyscall: "syscall", 7: "Mode(7)"} {
		if got := m.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// envChild makes TestInAProcessWithoutRings the child of itself.
const envChild = "RINGSIDE_TEST_CHILD"

// TestInAProcessWithoutRings runs the suite, and the test of the fallback, in a
// process to which io_uring is forbidden from its start.
func TestInAProcessWithoutRings(t *testing.T) {
	if os.Getenv(envChild) != "" {
		fallsBack(t)
		return
	}
	// The whole suite runs without rings in ModeSyscall, and with io_uring refused by make forbidden.
	run := "-test.run=^(TestInAProcessWithoutRings|TestSuite)$/./^(ReadAt|Close)$/^(Offsets|ReadAt)$"
	cmd := exec.Command(os.Args[0], run, "-test.v")
	cmd.Env = append(os.Environ(), envChild+"=1", features.EnvIOURing+"=off")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, line := range []string{"--- PASS: TestInAProcessWithoutRings", "--- PASS: TestSuite/auto", "--- SKIP: TestSuite/ring", "--- PASS: TestSuite/syscall"} {
		if !strings.Contains(string(out), line) {
			t.Errorf("the child does not say %q:\n%s", line, out)
		}
	}
}

func fallsBack(t *testing.T) {
	_, err := ufile.NewSystem(ufile.Options{Mode: ufile.ModeRing})
	forbidden, ok := errors.AsType[*features.ForbiddenError](err)
	if !ok || !errors.Is(err, features.ErrForbidden) || forbidden.Remedy == "" || !strings.Contains(err.Error(), forbidden.Remedy) {
		t.Errorf("the error of ModeRing does not say what to change: %v", err)
	}
	name, reason := ufile.Backend()
	if name != "syscall" || !strings.Contains(reason, features.EnvIOURing) {
		t.Errorf("backend %q, reason %q", name, reason)
	}
	content := random(10000)
	f, err := ufile.Open(fileOf(t, content))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p := make([]byte, len(content))
	readAt(t, f, p, 0)
	if !bytes.Equal(p, content) {
		t.Error("not what the file holds")
	}
	if s := f.Stats(); s.Ring != 0 || s.Cached+s.Plain == 0 {
		t.Errorf("%+v", s)
	}
	if n := rings(t); n != 0 {
		t.Errorf("%d rings in a process that must not have any", n)
	}
}

func TestNoSystemHasAnUnknownMode(t *testing.T) {
	for _, m := range []ufile.Mode{-1, ufile.ModeSyscall + 1} {
		if _, err := ufile.NewSystem(ufile.Options{Mode: m}); err == nil {
			t.Errorf("%v was accepted", m)
		}
	}
}
