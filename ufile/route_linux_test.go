// SPDX-License-Identifier: MIT

package ufile

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/internal/sys"
)

// hotFile opens a file of 4 KiB blocks, each filled with its number, and caches it.
func hotFile(t *testing.T, blocks int) *File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f")
	var data []byte
	for i := range blocks {
		data = append(data, bytes.Repeat([]byte{byte(i)}, 4096)...)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := NewSystem(Options{})
	if err != nil {
		t.Fatal(err)
	}
	f, err := s.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if f.route() != routeInline {
		t.Skip("needs a file system whose files can be read without blocking (FMODE_NOWAIT)")
	}
	if err := f.Sync(); err != nil { // dirty pages cannot be evicted
		t.Fatal(err)
	}
	return f
}

// readBlock reads a block and checks it.
func readBlock(t *testing.T, f *File, i int) {
	t.Helper()
	p := make([]byte, 4096)
	if n, err := f.ReadAt(p, int64(i)*4096); n != len(p) || err != nil || p[0] != byte(i) || p[4095] != byte(i) {
		t.Fatalf("ReadAt of block %d = %d, %v, first byte %d", i, n, err, p[0])
	}
}

// setHotCall sets the faster call for the time of a test.
func setHotCall(t *testing.T, c uint32) {
	before := hotCall.Swap(c)
	t.Cleanup(func() { hotCall.Store(before) })
}

// TestHotFile: where plain calls are faster, small reads of a cached file are plain calls,
// until one of them finds that its data is not cached.
func TestHotFile(t *testing.T) {
	const blocks = 1024
	setHotCall(t, callPlain)
	f := hotFile(t, blocks)
	for i := range 2 * blocks {
		readBlock(t, f, i%blocks)
	}
	st := f.Stats()
	if st.Cached < hotAfter || st.Plain < blocks || st.Ring != 0 {
		t.Errorf("after %d reads of a cached file: %+v, want most of them plain", 2*blocks, st)
	}
	if err := unix.Fadvise(f.fd, 0, 0, unix.FADV_RANDOM); err != nil {
		t.Fatal(err)
	}
	evict := func() {
		if err := unix.Fadvise(f.fd, 0, 0, unix.FADV_DONTNEED); err != nil {
			t.Fatal(err)
		}
	}
	// A call that must not wait starts the read that it does not wait for. On a fast disk it may
	// find the data, so that one round does not suffice.
	for range 20 {
		evict()
		for i := 0; f.hits.Load() != 0 && i < blocks; i++ {
			readBlock(t, f, i)
		}
		if f.hits.Load() == 0 {
			return
		}
	}
	evict()
	p := make([]byte, 4096)
	for i := range blocks {
		if _, errno := sys.PreadNoWait(f.fd, p, int64(i)*4096); errno == syscall.EAGAIN {
			t.Fatal("all blocks were read from the disk, and the file still counts as cached")
		}
	}
	t.Skip("needs a disk that does not answer before preadv2 with RWF_NOWAIT returns")
}

// TestColdFile: after coldMisses small blocks in succession that were not cached, one in coldAsk is looked up in
// the page cache, until one is there.
func TestColdFile(t *testing.T) {
	f := hotFile(t, 1)
	readBlock(t, f, 0)
	f.hits.Store(0)
	f.cold.Store(coldMisses)
	p := make([]byte, 4096)
	asked := 0
	for range 10 * coldAsk {
		if f.decide(p, 0) == wayCache {
			asked++
		}
	}
	if asked != 10 {
		t.Errorf("%d of %d blocks are looked up, want 10", asked, 10*coldAsk)
	}
	for range coldAsk {
		readBlock(t, f, 0)
	}
	if f.cold.Load() != 0 || f.decide(p, 0) != wayCache {
		t.Errorf("after a block that was cached %d count as not cached", f.cold.Load())
	}
}

// TestContextTakesTheSameWay: a read whose context can end takes the way that decide names for
// ReadAt: a plain call for a file that was cached so far, and for a large block that is not cached.
func TestContextTakesTheSameWay(t *testing.T) {
	const blocks = 256
	setHotCall(t, callPlain)
	f := hotFile(t, blocks)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p := make([]byte, 64<<10)
	for i := range 2 * blocks {
		n, err := f.ReadAtContext(ctx, p[:4096], int64(i%blocks)*4096)
		if n != 4096 || err != nil || p[0] != byte(i%blocks) {
			t.Fatalf("ReadAtContext of block %d = %d, %v, first byte %d", i%blocks, n, err, p[0])
		}
	}
	if st := f.Stats(); st.Plain < blocks || st.Cached > blocks || st.Ring != 0 {
		t.Errorf("after %d reads of a cached file: %+v, want most of them plain", 2*blocks, st)
	}
	f.misses.Store(bulkMisses + 1) // the next large block is not looked up in the cache
	before := f.Stats()
	if n, err := f.ReadAtContext(ctx, p, 0); n != len(p) || err != nil {
		t.Fatalf("ReadAtContext of 64 KiB = %d, %v", n, err)
	}
	if st := f.Stats(); st.Plain != before.Plain+1 || st.Ring != 0 || st.Cached != before.Cached {
		t.Errorf("a large block that is not cached: %+v, before %+v, want a plain call", st, before)
	}
	cancel()
	if n, err := f.ReadAtContext(ctx, p, 0); n != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("ReadAtContext of an ended context = %d, %v", n, err)
	}
}

// TestHotFileByRawCalls: where raw calls are faster, a cached file is read by them only.
func TestHotFileByRawCalls(t *testing.T) {
	setHotCall(t, callRaw)
	f := hotFile(t, 16)
	for i := range 1000 {
		readBlock(t, f, i%16)
	}
	if st := f.Stats(); st.Cached != 1000 {
		t.Errorf("after 1000 reads of a cached file: %+v, want all of them from the cache", st)
	}
}

// TestHotCallIsMeasured: the first hot read of a process compares the calls, and a block
// that is not cached any more leaves the question open.
func TestHotCallIsMeasured(t *testing.T) {
	setHotCall(t, callUnknown)
	f := hotFile(t, 16)
	p := make([]byte, 4096)
	if plainIsFaster(-1, p, 0) || hotCall.Load() != callUnknown {
		t.Errorf("a comparison that failed chose call %d, want none", hotCall.Load())
	}
	got := plainIsFaster(f.fd, p, 4096)
	if c := hotCall.Load(); c == callUnknown || (c == callPlain) != got {
		t.Errorf("plainIsFaster = %v and chose call %d", got, c)
	}
	if !bytes.Equal(p, bytes.Repeat([]byte{1}, 4096)) {
		t.Error("the buffer does not have the block that was compared with")
	}
}
