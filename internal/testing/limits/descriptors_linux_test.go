// SPDX-License-Identifier: MIT

package limits

import (
	"errors"
	"io"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/internal/testing/stress"
	"github.com/ringside-io/ringside/reactor"
)

// TestFewDescriptors lets dozens of goroutines, each of which uses up to 17 descriptors,
// share 64. Then all descriptors are used up, and open objects must still work. Then there
// are enough again, and everything must work.
func TestFewDescriptors(t *testing.T) {
	ringtest.NeedKernel(t, "DEFER_TASKRUN", "6.1")
	ringtest.NeedRing(t)
	if !inChild(t, nil) {
		return
	}
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	limit := func(n uint64) {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: n, Max: before.Max}); err != nil {
			t.Error(err)
		}
	}
	_, refused := run(t, directory(t), ringtest.Rounds(10, 2), ringtest.Rounds(40, 20), func(w *environment) {
		limit(64)
		w.tolerated, w.patience = []syscall.Errno{syscall.EMFILE}, 50*time.Millisecond
		w.ending = func(w *environment) {
			w.withoutAny()
			limit(512)
			w.withEnough()
		}
	})
	if refused == 0 {
		t.Error("no operation failed for lack of descriptors")
	}
}

// withoutAny uses up all descriptors.
func (w *environment) withoutAny() {
	var hog []io.Closer
	defer func() {
		for _, c := range hog {
			_ = c.Close()
		}
	}()
	f, err := w.KernelEnv.OpenFile(0)
	if err != nil {
		w.problem("a file: %v", err)
		return
	}
	hog = append(hog, f)
	if err := w.Batch(false, nil); err != nil { // made once, with a ring
		w.problem("a batch: %v", err)
	}
	null := func() (io.Closer, error) { return os.Open("/dev/null") }
	hog = append(hog, w.until("/dev/null", null)...)
	w.works("without descriptors")
	var p [stress.Block]byte
	if n, err := f.ReadAt(p[:], 0); n != len(p) || err != nil {
		w.problem("without descriptors: read %d bytes: %v", n, err)
	}
	for what, get := range map[string]func() (io.Closer, error){
		"a file":       func() (io.Closer, error) { return w.OpenFile(0) },
		"a pipe":       func() (io.Closer, error) { return w.Pipe(0) },
		"a watch":      func() (io.Closer, error) { return w.Watch(0) },
		"a connection": func() (io.Closer, error) { return w.Dial(0) },
		"another":      func() (io.Closer, error) { return w.Dial(1 << 24) },
	} {
		hog = append(hog, w.until(what, get)...)
	}
}

// until opens files until no descriptor is left; servers may still close some.
func (w *environment) until(what string, get func() (io.Closer, error)) (got []io.Closer) {
	for range 100 {
		c, err := get()
		if errors.Is(err, syscall.EMFILE) {
			return got
		}
		if err != nil {
			w.problem("%s without descriptors: %v", what, err)
			return got
		}
		got = append(got, c)
	}
	w.problem("opening %s never fails", what)
	return got
}

// works uses the objects that need no new descriptor.
func (w *environment) works(when string) {
	op := &reactor.Op{}
	op.SQE.Nop()
	if res := w.Engine().Do(op); res.Cause != nil || res.Res != 0 {
		w.problem("%s: the engine: %+v", when, res)
	}
}

// withEnough opens, at the same time, more objects than were possible before.
func (w *environment) withEnough() {
	w.tolerated, w.patience = nil, ringtest.Patience
	const many = 40
	var open []io.Closer
	have := func(what string, c io.Closer, err error) bool {
		if err != nil {
			w.problem("%s, after the shortage: %v", what, err)
			return false
		}
		open = append(open, c)
		return true
	}
	for i := range many {
		f, err := w.OpenFile(0)
		have("a file", f, err)
		p, err := w.Pipe(0)
		have("a pipe", p, err)
		c, err := w.Dial(uint64(i) << 24)
		have("a connection", c, err)
		k, err := w.Watch(i)
		if have("a watch", k, err) {
			if err := k.Poke(1); err != nil {
				w.problem("poke: %v", err)
			}
			k.Seen()
		}
	}
	w.works("after the shortage")
	for _, c := range open {
		if err := c.Close(); err != nil {
			w.problem("close, after the shortage: %v", err)
		}
	}
}
