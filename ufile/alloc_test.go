// SPDX-License-Identifier: MIT

package ufile_test

import (
	"os"
	"testing"

	"github.com/ringside-io/ringside/internal/ringtest"
	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/ufile"
)

func TestReadAtAndWriteAtDoNotAllocate(t *testing.T) {
	path := fileOf(t, random(1<<16))
	measure := func(t *testing.T, f *ufile.File) {
		t.Helper()
		p := ufile.AlignedBuffer(4096)
		if n := ringtest.Allocations(ringtest.Rounds(300, 50), func() { readAt(t, f, p, 8192) }); n != 0 {
			t.Errorf("ReadAt: %v allocations", n)
		}
		if n := ringtest.Allocations(ringtest.Rounds(300, 50), func() { writeAt(t, f, p, 4096) }); n != 0 {
			t.Errorf("WriteAt: %v allocations", n)
		}
	}
	overModes(t, func(t *testing.T, s *ufile.System) {
		measure(t, open(t, s, path, os.O_RDWR))
		t.Run("direct", func(t *testing.T) {
			needDirect(t, path)
			measure(t, open(t, s, path, os.O_RDWR|sys.ODirect))
		})
	})
}
