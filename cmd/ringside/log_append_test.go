// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/appendlog"
)

// TestLogOfAppendlog inspects, verifies and salvages a log of package appendlog.
func TestLogOfAppendlog(t *testing.T) {
	dir := t.TempDir()
	l, err := appendlog.Open(dir, appendlog.Options{Prefix: "p-"})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"one", "two", "three"} {
		if _, err := l.Append([]byte(d)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	log := func(name string, want int, texts ...string) {
		t.Helper()
		var out, errs bytes.Buffer
		code := run(t.Context(), []string{"log", name, dir}, &out, &errs)
		for _, text := range texts {
			if !strings.Contains(out.String(), text) {
				t.Errorf("log %s does not print %q: %s", name, text, out.String())
			}
		}
		if code != want {
			t.Errorf("log %s: code %d, want %d\n%s%s", name, code, want, out.String(), errs.String())
		}
	}
	log("verify", 0, `prefix "p-": 3 records of 11 bytes, numbers 1 to 3, 0 known to be lost`)
	f, err := os.OpenFile(filepath.Join(dir, "p-0000000000000001.seg"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("X"), 64+24); err != nil { // in the first record
		t.Fatal(err)
	}
	f.Close()
	log("inspect", 0, "2 records", "1 known to be lost", "damaged:")
	log("verify", 1, "damaged:")
	log("salvage", 0, "accepted losses: 1")
	log("verify", 0, "2 records", "a loss that was accepted")
}
