// SPDX-License-Identifier: MIT

package watch_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/watch"
)

// backendOf opens a watcher and returns its backend and the reason.
func backendOf(t *testing.T, o watch.Options) (name, reason string, err error) {
	t.Helper()
	w, err := watch.New(o)
	if err != nil {
		return "", "", err
	}
	defer w.Close()
	name, reason = w.Backend()
	return name, reason, nil
}

func TestBackendByOptionAndEnvironment(t *testing.T) {
	overBackends(t, func(t *testing.T, b watch.Mode) {
		for _, env := range []string{"", "auto", "epoll", "io_uring"} {
			t.Setenv(features.EnvBackend, env)
			name, reason, err := backendOf(t, watch.Options{Mode: b})
			if err != nil || name != b.String() || !strings.Contains(reason, "options") {
				t.Errorf("%v with %q in the environment: %s (%s), %v", b, env, name, reason, err)
			}
		}
		t.Setenv(features.EnvBackend, b.String())
		name, reason, err := backendOf(t, watch.Options{})
		if err != nil || name != b.String() || !strings.Contains(reason, features.EnvBackend) {
			t.Errorf("%v in the environment: %s (%s), %v", b, name, reason, err)
		}
	})
	logger, await := ringtest.Logger(t)
	if name, _, err := backendOf(t, watch.Options{Mode: watch.ModeEpoll, Logger: logger}); err != nil {
		t.Error(err)
	} else {
		await(`msg="watch: backend chosen" backend=` + name)
	}
	t.Setenv(features.EnvBackend, "kqueue")
	if _, _, err := backendOf(t, watch.Options{}); err == nil || !strings.Contains(err.Error(), "kqueue") || !strings.Contains(err.Error(), features.EnvBackend) {
		t.Errorf("an unknown name: %v", err)
	}
	if _, _, err := backendOf(t, watch.Options{Mode: 7}); err == nil {
		t.Error("an unknown backend was opened")
	}
}

func TestAutoTakesTheRing(t *testing.T) {
	ringtest.NeedKernel(t, "deferred task work", "6.1")
	if os.Getenv(features.EnvBackend) == "plain" {
		t.Skip("needs io_uring, which the environment switches off")
	}
	t.Setenv(features.EnvBackend, "")
	if name, reason, err := backendOf(t, watch.Options{}); err != nil || name != "io_uring" || reason == "" {
		t.Errorf("%s (%s), %v", name, reason, err)
	}
}

// envChild makes the test binary a child of TestInAProcessWithoutRings.
const envChild = "RINGSIDE_TEST_CHILD"

// TestInAProcessWithoutRings runs the suite and the test of the automatic choice in a
// process in which io_uring is forbidden from the start.
func TestInAProcessWithoutRings(t *testing.T) {
	if os.Getenv(envChild) != "" {
		withoutRings(t)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^(TestInAProcessWithoutRings|TestSuite)$/^(epoll|io_uring)?$/^(Mode|Wait)?$", "-test.v")
	cmd.Env = append(os.Environ(), envChild+"=1", features.EnvBackend+"=plain")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, line := range []string{"--- PASS: TestInAProcessWithoutRings", "--- PASS: TestSuite/epoll/Wait", "--- SKIP: TestSuite/io_uring"} {
		if !strings.Contains(string(out), line) {
			t.Errorf("the output of the child lacks %q:\n%s", line, out)
		}
	}
}

func withoutRings(t *testing.T) {
	name, reason, err := backendOf(t, watch.Options{})
	if err != nil || name != "epoll" || !strings.Contains(reason, features.EnvBackend) {
		t.Errorf("auto: %s (%s), %v", name, reason, err)
	}
	_, _, err = backendOf(t, watch.Options{Mode: watch.ModeRing})
	forbidden, ok := errors.AsType[*features.ForbiddenError](err)
	if !ok || !strings.Contains(err.Error(), forbidden.Remedy) {
		t.Errorf("the error does not name the remedy: %v", err)
	}
}

func TestNames(t *testing.T) {
	for _, b := range []watch.Mode{watch.ModeAuto, watch.ModeEpoll, watch.ModeRing} {
		if got, err := features.ParseMode(b.String()); got != b || err != nil {
			t.Errorf("%v: %v, %v", b, got, err)
		}
	}
	for got, want := range map[string]string{
		watch.Mode(9).String():                     "Mode(9)",
		watch.Level.String():                       "level",
		watch.OneShot.String():                     "one-shot",
		watch.Trigger(9).String():                  "Trigger(9)",
		watch.Events(0).String():                   "none",
		(watch.Read | watch.HangUp).String():       "read|hang-up",
		(watch.PeerHangUp | 1<<20).String():        "peer hang-up|0x100000",
		(watch.Error | watch.Priority).String():    "priority|error",
		watch.Edge.String() + watch.Write.String(): "edgewrite",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
