// SPDX-License-Identifier: MIT

package workload

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/engine"
)

// TestAdviseRandom reads the beginning of a file, which the kernel takes for the start of a
// sequential read, and checks whether the kernel also read the next page.
func TestAdviseRandom(t *testing.T) {
	d, err := datafile.Create(t.Context(), t.TempDir(), 4<<20, contentSeed, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Remove(); err != nil {
			t.Error(err)
		}
	}()
	if err := datafile.ProbeEvict(d.Path()); err != nil {
		t.Skipf("eviction from the page cache: %v", err)
	}
	for _, e := range []engine.Engine{engine.OS{}, engine.Ringside{}} {
		if ahead := readsAhead(t, e, d.Path(), func(engine.File) error { return nil }); !ahead {
			t.Skipf("read-ahead: this storage has none with %s", e.Name())
		}
		// Pages that the kernel is still reading ahead are not evicted.
		for tries := 0; readsAhead(t, e, d.Path(), adviseRandom); tries++ {
			if tries == 20 {
				t.Fatalf("%s: the kernel read ahead", e.Name())
			}
			time.Sleep(time.Duration(tries) * time.Millisecond)
		}
	}
}

// readsAhead reports whether the kernel has read more than was requested.
func readsAhead(t *testing.T, e engine.Engine, path string, advise func(engine.File) error) bool {
	t.Helper()
	f, err := e.OpenRead(path, false)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	buf := alignedBuffer(bufferAlign)
	if err := errors.Join(datafile.Evict(path), advise(f)); err != nil {
		t.Fatal(err)
	}
	for i := range int64(2) {
		if _, err := f.ReadAt(buf, i*bufferAlign); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	_, err = unix.Preadv2(int(file.Fd()), [][]byte{buf}, 3*bufferAlign, unix.RWF_NOWAIT)
	if err != nil && !errors.Is(err, unix.EAGAIN) {
		t.Skipf("RWF_NOWAIT: %v", err)
	}
	return err == nil
}
