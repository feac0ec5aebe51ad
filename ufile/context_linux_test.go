// SPDX-License-Identifier: MIT

package ufile_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/ufile"
)

// errWhy is the cause with which contexts end.
var errWhy = errors.New("the caller gave up")

// ended returns a context that is cancelled.
func ended() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errWhy)
	return ctx
}

// live returns a context that can be cancelled; the end of the test cancels it.
func live(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	return ctx
}

// TestContextCalls makes the calls with a context that stays alive: the results are those
// without a context.
func TestContextCalls(t *testing.T) {
	overModes(t, func(t *testing.T, s *ufile.System) {
		for name, ctx := range map[string]context.Context{"can": live(t), "cannot": context.Background()} {
			t.Run(name, func(t *testing.T) { contextCalls(t, s, ctx) })
		}
	})
}

func contextCalls(t *testing.T, s *ufile.System, ctx context.Context) {
	content := random(300_000)
	f := open(t, s, fileOf(t, content), os.O_RDWR)
	p := make([]byte, 400_000)
	n, err := f.ReadAtContext(ctx, p, 1000)
	if n != len(content)-1000 || err != io.EOF || !bytes.Equal(p[:n], content[1000:]) {
		t.Errorf("ReadAtContext = %d, %v", n, err)
	}
	n, err = f.WriteAtContext(ctx, []byte("written"), 299_999)
	if n != 7 || err != nil {
		t.Errorf("WriteAtContext = %d, %v", n, err)
	}
	readAt(t, f, p[:7], 299_999)
	if string(p[:7]) != "written" {
		t.Errorf("%q", p[:7])
	}
	_, readErr := f.ReadAtContext(ctx, p, -1)
	_, wantRead := f.ReadAt(p, -1)
	_, writeErr := f.WriteAtContext(ctx, p, -1)
	_, wantWrite := f.WriteAt(p, -1)
	if readErr.Error() != wantRead.Error() || writeErr.Error() != wantWrite.Error() {
		t.Errorf("a negative offset: %v, %v", readErr, writeErr)
	}
	f.Close()
	_, readErr = f.ReadAtContext(ctx, p, 0)
	_, writeErr = f.WriteAtContext(ctx, p, 0)
	for op, err := range map[string]error{"read": readErr, "write": writeErr} {
		if e, ok := err.(*fs.PathError); !ok || e.Op != op || !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s of a closed file: %v", op, err)
		}
	}
	if _, err := (*ufile.File)(nil).ReadAtContext(ctx, p, 0); err != os.ErrInvalid {
		t.Errorf("of a nil file: %v", err)
	}
}

// TestContextEnded makes the calls with a cancelled context: nothing is read or written.
func TestContextEnded(t *testing.T) {
	overModes(t, func(t *testing.T, s *ufile.System) {
		f := open(t, s, fileOf(t, []byte("untouched")), os.O_RDWR)
		p := []byte("#########")
		n, readErr := f.ReadAtContext(ended(), p, 0)
		m, writeErr := f.WriteAtContext(ended(), []byte("X"), 0)
		if n != 0 || m != 0 || string(p) != "#########" {
			t.Errorf("%d bytes read, %d written", n, m)
		}
		for op, err := range map[string]error{"read": readErr, "write": writeErr} {
			if e, ok := err.(*fs.PathError); !ok || e.Op != op || e.Path != f.Name() || e.Err != errWhy {
				t.Errorf("%s returned %v", op, err)
			}
		}
		readAt(t, f, p, 0)
		if string(p) != "untouched" {
			t.Errorf("%q", p)
		}
		if got := f.Stats(); got.Ring+got.Plain+got.Cached > 1 {
			t.Errorf("%+v", got)
		}
	})
}

// TestContextRace cancels contexts while their reads and writes are in flight. Each ends
// with its data or with the cause, and its memory belongs to the caller afterwards.
func TestContextRace(t *testing.T) {
	const block, blocks = 4096, 64
	content := random(block * blocks)
	path := fileOf(t, content)
	needDirect(t, path)
	overModes(t, func(t *testing.T, s *ufile.System) {
		f := open(t, s, path, os.O_RDWR|sys.ODirect)
		var all sync.WaitGroup
		for g := range 16 {
			all.Go(func() { contextRacer(t, f, content, g) })
		}
		all.Wait()
	})
}

func contextRacer(t *testing.T, f *ufile.File, content []byte, g int) {
	p := ufile.AlignedBuffer(4 * 4096)
	for i := range 50 {
		off := (g*50 + i*7) % 60 * 4096
		want := content[off : off+len(p)]
		ctx, cancel := context.WithCancelCause(context.Background())
		stop := time.AfterFunc(time.Duration(i*3)*time.Microsecond, func() { cancel(errWhy) })
		var n int
		var err error
		if i%3 == 0 {
			copy(p, want) // the data that is already there
			n, err = f.WriteAtContext(ctx, p, int64(off))
		} else {
			n, err = f.ReadAtContext(ctx, p, int64(off))
		}
		stop.Stop()
		cancel(nil)
		switch {
		case err == nil && n == len(p) && bytes.Equal(p, want):
		case errors.Is(err, errWhy) && bytes.Equal(p[:n], want[:n]):
		default:
			t.Errorf("%d, %v, or other data", n, err)
			return
		}
		clear(p) // the race detector reports any other access
	}
}
