// SPDX-License-Identifier: MIT

package vm

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// output runs a command and returns its standard output. The error carries
// the last lines of standard error.
func output(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	if err := cmd.Run(); err != nil {
		return stdout.Bytes(), fmt.Errorf("%s %s: %w%s", name, strings.Join(args, " "), err, tail(stderr.String(), 3))
	}
	return stdout.Bytes(), nil
}

// tail returns the last n lines of s, led by a colon, for an error message.
func tail(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	lines = lines[max(0, len(lines)-n):]
	if s = strings.Join(lines, "; "); s != "" {
		s = ": " + s
	}
	return s
}

// lookPath finds a program, also in the system directories that are not in
// the PATH of an ordinary user.
func lookPath(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if path, err2 := exec.LookPath(filepath.Join(dir, name)); err2 == nil {
			return path, nil
		}
	}
	return "", err
}
