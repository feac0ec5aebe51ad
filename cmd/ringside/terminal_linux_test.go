// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// openTerminal returns both ends of a pseudo-terminal.
func openTerminal(t *testing.T) (outside, inside *os.File) {
	t.Helper()
	outside, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("pseudo terminals: %v", err)
	}
	t.Cleanup(func() { _ = outside.Close() })
	if err := unix.IoctlSetPointerInt(int(outside.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Skipf("pseudo terminals: %v", err)
	}
	n, err := unix.IoctlGetInt(int(outside.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Skipf("pseudo terminals: %v", err)
	}
	if err := unix.IoctlSetWinsize(int(outside.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 120}); err != nil {
		t.Fatal(err)
	}
	inside, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("pseudo terminals: %v", err)
	}
	return outside, inside
}

// onTerminal runs the program with its output on a terminal and returns the output.
func onTerminal(t *testing.T, args []string, env ...string) string {
	t.Helper()
	outside, inside := openTerminal(t)
	cmd := program(t, args...)
	cmd.Env = append(cmd.Env, append([]string{"TERM=xterm"}, env...)...)
	cmd.Stdout, cmd.Stderr = inside, inside
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = inside.Close() // The program has its own copy.
	var screen bytes.Buffer
	_, _ = screen.ReadFrom(outside) // The read ends with EIO when the program ends.
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, screen.String())
	}
	return screen.String()
}

func TestTerminalGetsProgressAndColour(t *testing.T) {
	args := tiny(t.TempDir(), "--duration", "60ms", "--cache", "hot")
	screen := onTerminal(t, args, "NO_COLOR=")
	if !strings.Contains(screen, "left") || !strings.Contains(screen, "randread, page cache hot") {
		t.Errorf("no progress bar in %q", screen)
	}
	if !strings.Contains(screen, "\x1b[1mrandread") {
		t.Errorf("no bold title in %q", screen)
	}
	if screen = onTerminal(t, args, "NO_COLOR=1"); strings.Contains(screen, "\x1b[1m") {
		t.Errorf("colour although NO_COLOR is set: %q", screen)
	}
	if screen = onTerminal(t, args, "TERM=dumb"); strings.Contains(screen, "\x1b") {
		t.Errorf("control sequences on a dumb terminal: %q", screen)
	}
}
