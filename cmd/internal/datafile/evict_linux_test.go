// SPDX-License-Identifier: MIT

package datafile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestProbeEvict(t *testing.T) {
	if err := ProbeEvict(filepath.Join(t.TempDir(), "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	inMemory := func(dir string) bool {
		var st unix.Statfs_t
		return unix.Statfs(dir, &st) == nil && st.Type == unix.TMPFS_MAGIC
	}
	for _, parent := range []string{"", "/dev/shm", "/var/tmp"} {
		dir, err := os.MkdirTemp(parent, "")
		if err != nil {
			t.Logf("%s: %v", parent, err)
			continue
		}
		defer os.RemoveAll(dir)
		d, err := Create(t.Context(), dir, 64*UnitSize, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := ProbeEvict(d.Path()); errors.Is(err, ErrCached) != inMemory(dir) || err != nil && !errors.Is(err, ErrCached) {
			t.Errorf("%s: %v", dir, err)
		}
		if err := d.Remove(); err != nil {
			t.Error(err)
		}
	}
}
