// SPDX-License-Identifier: MIT

//go:build unix

package liburing

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestKilledCompilerLeavesNothing ends a build while the compiler has a temporary file.
func TestKilledCompilerLeavesNothing(t *testing.T) {
	bin, temp := t.TempDir(), t.TempDir()
	const compiler = "#!/bin/sh\n: >\"$TMPDIR/temporary.s\"\nexec sleep 600\n"
	if err := os.WriteFile(filepath.Join(bin, "cc"), []byte(compiler), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	t.Setenv("TMPDIR", temp)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // until the compiler has started
		defer cancel()
		for made := 0; made == 0 && ctx.Err() == nil; time.Sleep(time.Millisecond) {
			for _, pattern := range []string{"*.s", "*/*.s"} {
				names, _ := filepath.Glob(filepath.Join(temp, pattern)) // the pattern is right
				made += len(names)
			}
		}
	}()
	p, err := Build(ctx)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", p, err)
	}
	entries, err := os.ReadDir(temp)
	if len(entries) > 0 || err != nil {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}
