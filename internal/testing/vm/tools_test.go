// SPDX-License-Identifier: MIT

package vm

import (
	"os"
	"path/filepath"
	"testing"
)

// TestAptGetWaits uses an apt-get that finds the lock held the first time, and one that
// fails for another reason.
func TestAptGetWaits(t *testing.T) {
	dir := t.TempDir()
	const script = `#!/bin/sh
echo x >>"$0.calls"
if [ "$1" = broken ]; then echo "E: no such package" >&2; exit 100; fi
if [ "$(wc -l <"$0.calls")" = 1 ]; then echo "E: Unable to lock directory /var/lib/apt/lists/" >&2; exit 100; fi
`
	apt := filepath.Join(dir, "apt-get")
	if err := os.WriteFile(apt, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for arg, want := range map[string]struct {
		calls string
		fails bool
	}{"update": {"x\nx\n", false}, "broken": {"x\n", true}} {
		os.Remove(apt + ".calls")
		_, err := aptGet(t.Context(), "", arg)
		if b, _ := os.ReadFile(apt + ".calls"); string(b) != want.calls || (err != nil) != want.fails {
			t.Errorf("apt-get %s: %q, %v", arg, b, err)
		}
	}
}
