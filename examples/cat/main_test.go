// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

func TestCat(t *testing.T) {
	dir := t.TempDir()
	random := make([]byte, 3<<20+123)
	for i := range random {
		random[i] = byte(rand.Uint32())
	}
	names := []string{filepath.Join(dir, "a"), filepath.Join(dir, "empty"), filepath.Join(dir, "b")}
	for i, content := range [][]byte{random, nil, []byte("the end\n")} {
		if err := os.WriteFile(names[i], content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := append(bytes.Clone(random), "the end\n"...)
	for _, args := range [][]string{names, append([]string{"-direct"}, names...)} {
		var out bytes.Buffer
		if err := run(t.Context(), args, &out); err != nil || !bytes.Equal(out.Bytes(), want) {
			t.Errorf("%q: %v, %d bytes, want %d", args[:1], err, out.Len(), len(want))
		}
	}
	var out bytes.Buffer
	err := run(t.Context(), []string{filepath.Join(dir, "missing"), names[2]}, &out)
	if !errors.Is(err, fs.ErrNotExist) || out.String() != "the end\n" {
		t.Errorf("with a file missing: %v, %q", err, &out)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := run(ctx, names, &out); !errors.Is(err, context.Canceled) {
		t.Errorf("after an interrupt: %v", err)
	}
}
