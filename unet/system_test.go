// SPDX-License-Identifier: MIT

package unet_test

import (
	"net"
	"runtime"
	"testing"

	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/unet"
)

func TestModes(t *testing.T) {
	for _, c := range []struct {
		mode unet.Mode
		name string
	}{{unet.ModeAuto, "auto"}, {unet.ModeRing, "io_uring"}, {unet.ModePlain, "plain"}, {unet.ModeNet, "net"}, {9, "Mode(9)"}} {
		if got := c.mode.String(); got != c.name {
			t.Errorf("%s prints as %s", c.name, got)
		}
	}
	for _, mode := range []unet.Mode{9, features.ModeEpoll} {
		want := "unet: unknown mode " + mode.String() + ": want auto, io_uring, plain or net"
		if _, err := unet.NewSystem(unet.Options{Mode: mode}); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestWithoutRings switches io_uring off: an automatic choice uses system calls, or package
// net's connections on other systems than Linux, and names the reason; an explicit choice
// fails.
func TestWithoutRings(t *testing.T) {
	t.Setenv(features.EnvBackend, "plain")
	if _, err := unet.NewSystem(unet.Options{Mode: unet.ModeRing}); err == nil {
		t.Error("ModeRing was accepted although io_uring is switched off")
	}
	s, err := unet.NewSystem(unet.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := "plain"
	if runtime.GOOS != "linux" {
		want = "net"
	}
	if name, reason := s.Backend(); name != want || reason == "" {
		t.Errorf("backend %s because of %q", name, reason)
	}
	a, b := pair(t, s, "tcp")
	for _, c := range []net.Conn{a, b} {
		if _, ok := c.(*net.TCPConn); ok != (want == "net") {
			t.Errorf("%T from backend %s", c, want)
		}
	}
}

func TestBackendNames(t *testing.T) {
	want := map[unet.Mode]string{unet.ModeNet: "net", unet.ModePlain: "plain", unet.ModeRing: "io_uring"}
	for _, mode := range modes() {
		t.Run(mode.String(), func(t *testing.T) {
			name, reason := newSystem(t, mode).Backend()
			if name != want[mode] || (reason != "") != (mode == unet.ModeNet) {
				t.Errorf("backend %s, %q", name, reason)
			}
		})
	}
}
