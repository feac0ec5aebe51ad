// SPDX-License-Identifier: MIT

package workload

import (
	"errors"
	"testing"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/engine"
)

// realFile makes a file of 1 MiB for the time of the test.
func realFile(t *testing.T) *datafile.File {
	t.Helper()
	d, err := datafile.Create(t.Context(), t.TempDir(), 1<<20, contentSeed, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Remove(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// directness returns the ways in which the file can be opened: without and with O_DIRECT.
func directness(t testing.TB, path string) []bool {
	if errors.Is(ProbeDirect(engine.OS{}, path), ErrNoDirect) {
		t.Log("O_DIRECT: not on this file system")
		return []bool{false}
	}
	return []bool{false, true}
}
