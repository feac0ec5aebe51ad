// SPDX-License-Identifier: MIT

package ufile_test

import (
	"math"
	"os"
	"sync"
	"testing"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/ufile"
)

// TestStatsTellThePath reads what is in the page cache and writes, in each
// mode.
func TestStatsTellThePath(t *testing.T) {
	content := random(8192)
	for mode, want := range map[ufile.Mode]ufile.Stats{
		ufile.ModeAuto:    {Cached: 1, Plain: 1}, // buffered writes are plain
		ufile.ModeRing:    {Ring: 2},
		ufile.ModeSyscall: {Plain: 2},
	} {
		t.Run(mode.String(), func(t *testing.T) {
			s := newSystem(t, ufile.Options{Mode: mode})
			path := fileOf(t, content)
			if mode == ufile.ModeAuto {
				needNoWait(t, path)
			}
			f := open(t, s, path, os.O_RDWR)
			p := make([]byte, 4096)
			readAt(t, f, p, 100)
			writeAt(t, f, p, 100)
			if got := f.Stats(); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
			want.Reactor = s.Stats().Reactor
			if got := s.Stats(); got != want || got.Reactor.Submitted != want.Ring || got.Reactor.InFlight != 0 {
				t.Errorf("the system's: %+v, want %+v", got, want)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			if got := s.Stats(); got != want {
				t.Errorf("after Close %+v, want %+v", got, want)
			}
		})
	}
}

// TestDirectReadsMeetInARing reads with O_DIRECT, alone by plain calls and with
// many goroutines through a ring.
func TestDirectReadsMeetInARing(t *testing.T) {
	needRing(t)
	path := fileOf(t, random(1<<20))
	needDirect(t, path)
	s := newSystem(t, ufile.Options{})
	f := open(t, s, path, os.O_RDWR|sys.ODirect)
	for i := range 5 {
		readAt(t, f, ufile.AlignedBuffer(4096), int64(i)*4096)
		writeAt(t, f, ufile.AlignedBuffer(4096), int64(i)*4096)
	}
	// A goroutine whose stack has moved is taken for another once.
	if got := f.Stats(); got.Plain < 7 || got.Plain+got.Ring != 10 || got.Cached != 0 {
		t.Errorf("one after the other: %+v", got)
	}
	var wg sync.WaitGroup
	for g := range 64 {
		p := ufile.AlignedBuffer(4096)
		wg.Go(func() {
			for i := range 20 {
				if n, err := f.ReadAt(p, int64((g*20+i)%256)*4096); n != len(p) || err != nil {
					t.Errorf("%d, %v", n, err)
				}
			}
		})
	}
	wg.Wait()
	if got := f.Stats(); got.Ring == 0 || got.Cached != 0 || got.Ring+got.Plain != 10+64*20 {
		t.Errorf("64 at a time: %+v", got)
	}
}

// TestHopelessOffsetsDoNotSpoilTheCache asks for what the kernel refuses in the
// words of one that does not know RWF_NOWAIT.
func TestHopelessOffsetsDoNotSpoilTheCache(t *testing.T) {
	path := fileOf(t, random(4096))
	needNoWait(t, path)
	f := open(t, newSystem(t, ufile.Options{}), path, os.O_RDONLY)
	p := make([]byte, 100)
	for _, off := range []int64{math.MaxInt64, math.MaxInt64 - 99, 1 << 62, -1} {
		if _, err := f.ReadAt(p, off); err == nil {
			t.Errorf("reads at %d", off)
		}
	}
	before := f.Stats().Cached
	readAt(t, f, p, 0)
	if got := f.Stats().Cached; got != before+1 {
		t.Errorf("%d reads from the cache, want 1", got-before)
	}
}
