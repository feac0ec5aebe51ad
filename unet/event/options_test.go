// SPDX-License-Identifier: MIT

package event

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/features"
)

func TestOptionsAreChecked(t *testing.T) {
	for _, o := range []Options{
		{Mode: features.ModePlain}, {Mode: 9}, {Loops: -1}, {Loops: 2000}, {WriteLimit: -1}, {BufferSize: -1},
		{BufferSize: 2 << 20}, {Buffers: 3}, {Buffers: 1 << 16}, {TurnBytes: -1},
	} {
		if s, err := Listen("tcp", "127.0.0.1:0", Handler{}, o); err == nil || s != nil {
			t.Errorf("%+v is accepted", o)
		}
	}
	f, err := Options{}.filled()
	if err != nil || f.Loops < 1 || f.WriteLimit == 0 || f.Buffers == 0 || f.BufferSize == 0 {
		t.Errorf("%+v, %v", f, err)
	}
}

func TestModeHasAName(t *testing.T) {
	for m, want := range map[Mode]string{ModeAuto: "auto", ModeRing: "io_uring", ModeEpoll: "epoll", ModeNet: "net", 7: "Mode(7)"} {
		if got := m.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestListenErrors(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		s := start(t, Handler{}, o)
		_, err := Listen("tcp", s.Addr().String(), Handler{}, Options{Mode: o.Mode, Loops: 1})
		if _, ok := errors.AsType[*net.OpError](err); !ok {
			t.Errorf("address in use: %v", err)
		}
		if _, err := Listen("udp", "127.0.0.1:0", Handler{}, o); err == nil {
			t.Error("udp is accepted")
		}
		if _, err := Listen("unix", t.TempDir()+"/no/such", Handler{}, o); err == nil {
			t.Error("a path that cannot be is accepted")
		}
	})
}

// fallback is the backend where io_uring cannot be used.
func fallback() string {
	if runtime.GOOS == "linux" {
		return "epoll"
	}
	return "net"
}

// envChild makes the test binary a child of TestWhereRingsAreForbidden.
const envChild = "RINGSIDE_TEST_CHILD"

func TestWhereRingsAreForbidden(t *testing.T) {
	if os.Getenv(envChild) != "" {
		_, err := Listen("tcp", "127.0.0.1:0", Handler{}, Options{Mode: ModeRing})
		if !errors.Is(err, features.ErrForbidden) {
			t.Errorf("ModeRing: %v", err)
		}
		s := start(t, echoes(), Options{})
		if name, reason := s.Backend(); name != fallback() || !strings.Contains(reason, features.EnvBackend) {
			t.Errorf("backend %q, reason %q", name, reason)
		}
		exchange(t, dial(t, s), random(100_000, 1))
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestWhereRingsAreForbidden$", "-test.v")
	cmd.Env = append(os.Environ(), envChild+"=1", features.EnvBackend+"=plain")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestWhereRingsAreForbidden") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestBackend(t *testing.T) {
	needRing(t)
	s := start(t, echoes(), Options{})
	if name, reason := s.Backend(); name != "io_uring" || reason != "" {
		t.Errorf("backend %q although io_uring works: %s", name, reason)
	}
	for mode, want := range map[Mode]string{ModeRing: "io_uring", ModeEpoll: "epoll", ModeNet: "net"} {
		s = start(t, echoes(), Options{Mode: mode})
		if name, reason := s.Backend(); name != want || reason != "chosen by the options" {
			t.Errorf("backend %q, reason %q", name, reason)
		}
	}
}

// TestTrace checks that a goroutine profile has the labels, and the trace the regions,
// exactly when the option is set.
func TestTrace(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		for _, on := range []bool{false, true} {
			o.Trace = on
			s := start(t, echoes(), o)
			c := dial(t, s)
			exchange(t, c, []byte("x"))
			var profile, events bytes.Buffer
			// A goroutine of the previous server may still be ending.
			await(t, fmt.Sprintf("the profile has labels exactly if Trace is set, now %v", on), func() bool {
				profile.Reset()
				if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
					t.Fatal(err)
				}
				return strings.Contains(profile.String(), `"ringside":"event"`) == on
			})
			if err := trace.Start(&events); err != nil {
				t.Skipf("needs an execution trace, but one is already running: %v", err)
			}
			exchange(t, c, []byte("y"))
			trace.Stop()
			if got := bytes.Contains(events.Bytes(), []byte("event.turn")); got != (on && o.Mode != ModeNet) {
				t.Errorf("Trace %v: regions in the trace: %v", on, got)
			}
			_ = s.Close()
		}
	})
}
