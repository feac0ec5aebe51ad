// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestServeArguments(t *testing.T) {
	dir := t.TempDir()
	for _, tc := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"serve", "--help"}, exitOK, "Examples"},
		{[]string{"serve"}, exitUsage, "one directory"},
		{[]string{"serve", dir, dir}, exitUsage, "one directory"},
		{[]string{"serve", filepath.Join(dir, "missing")}, exitFailure, "name a directory"},
		{[]string{"serve", dir, "--cert", "x"}, exitUsage, "name its file with --key"},
		{[]string{"serve", dir, "--cert", "x", "--key", "y"}, exitFailure, "--cert and --key"},
		{[]string{"serve", dir, "--addr", "nonsense"}, exitFailure, "nonsense"},
		{[]string{"serve", dir, "--addr", "192.0.2.1:0"}, exitFailure, "address of this machine"},
		{[]string{"serve", dir, "--access-log", dir}, exitFailure, "--access-log"},
		{[]string{"serve", dir, "--ktls", "yes"}, exitUsage, "must be auto, on or off"},
		{[]string{"serve", dir, "--ktls", "auto"}, exitUsage, "with --cert and --key"},
		{[]string{"serve", dir, "--grace", "-1s"}, exitUsage, "--grace"},
	} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), tc.args, &stdout, &stderr)
		if code != tc.code || !strings.Contains(stdout.String()+stderr.String(), tc.says) {
			t.Errorf("%q: exit %d, stdout %q, stderr %q", tc.args, code, stdout.String(), stderr.String())
		}
	}
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code := run(t.Context(), []string{"serve", file}, &bytes.Buffer{}, &bytes.Buffer{}); code != exitFailure {
		t.Errorf("a file: exit %d", code)
	}
}
