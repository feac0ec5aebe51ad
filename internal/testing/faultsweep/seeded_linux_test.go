// SPDX-License-Identifier: MIT

package faultsweep

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

func TestMain(m *testing.M) { os.Exit(ringtest.Main(m)) }

// seeded uses a ring with a chosen bug: it reads from a pipe into a provided buffer, with a
// table of slots.
type seeded struct {
	leaksSlot, keepsBuffer, leaksFD, hidesError, ignoresShort bool

	fds []int // slots that the bug leaked
}

func (b *seeded) run(t *Trial) {
	const size = 64
	r, err := uring.Open(uring.Options{Entries: 4})
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer r.Close()
	bufs, err := r.NewBufRing(uring.BufRingOptions{Entries: 2, BufferSize: size})
	if err != nil {
		t.Fatalf("%v", err)
	}
	var p [2]int
	if err := syscall.Pipe2(p[:], syscall.O_CLOEXEC); err != nil {
		t.Fatalf("%v", err)
	}
	defer func() {
		if _, fired := t.Choice(); b.leaksFD && fired {
			b.fds = append(b.fds, p[0])
		} else {
			_ = syscall.Close(p[0])
		}
		_ = syscall.Close(p[1])
	}()
	_, _ = syscall.Write(p[1], []byte("12345678"))
	slots := 0
	var got []byte
	t.Arm()
	for len(got) < 8 {
		slots++
		e := r.SQE().Read(uring.Fd(p[0]), nil, 0)
		e.Raw().Len = uint32(8 - len(got))
		e.SetFlags(uring.SQEBufferSelect)
		e.Raw().BufIndex = bufs.Group()
		var c [1]uring.CQE
		for r.Reap(c[:]) == 0 {
			if _, err := r.SubmitAndWait(1); err != nil {
				t.Fatalf("%v", err)
			}
		}
		if data, _ := bufs.Take(c[0]); data != nil {
			got = append(got, data...)
			if !b.keepsBuffer || len(data) == 8 {
				bufs.Recycle(c[0].BufferID())
				bufs.Publish()
			}
		}
		if err := c[0].Err(); err != nil && !b.hidesError {
			if !b.leaksSlot {
				slots--
			}
			t.Judge("read", err)
			break
		}
		slots--
		if b.hidesError || b.ignoresShort {
			break
		}
	}
	t.Disarm()
	if c, fired := t.Choice(); string(got) != "12345678" && (!fired || c.Passing) || !strings.HasPrefix("12345678", string(got)) || b.hidesError && len(got) == 0 {
		t.Errorf("read %q", got)
	}
	if slots != 0 {
		t.Errorf("%d slots are in use", slots)
	}
	if n, err := bufs.Available(); err == nil && n != 2 {
		t.Errorf("the kernel has %d buffers", n)
	}
}

// TestSeededBugs seeds one bug at a time. Each must be found, and without a bug the sweep
// must find nothing.
// Promise: tests/dropped-completion-found
// Promise: tests/leaked-slot-found
// Promise: tests/stale-descriptor-found
func TestSeededBugs(t *testing.T) {
	Need(t)
	ringtest.NeedKernel(t, "status of buffer rings", "6.8")
	if testing.Short() {
		t.Skip("checks the sweep, not the product: not with -short")
	}
	reads := []Choice{{Errno: syscall.EIO}, short}
	for _, c := range []struct {
		name    string
		bug     seeded
		choices []Choice
		want    string
	}{
		{"none", seeded{}, reads, ""},
		{"a leaked slot", seeded{leaksSlot: true}, reads, "1 slots are in use"},
		{"a buffer that is not returned", seeded{keepsBuffer: true}, reads, "the kernel has"},
		{"a stale descriptor", seeded{leaksFD: true}, reads, "descriptors"},
		{"an error that is lost", seeded{hidesError: true}, reads, `read ""`},
		{"a short read taken for all", seeded{ignoresShort: true}, reads, `read "1234"`},
		{"a dropped completion", seeded{}, []Choice{{Drop: true, Passing: true}}, "hangs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := c.bug
			r := Sweep([]Operation{{Name: "read", Run: b.run, Only: []string{"READ"}, Instead: map[string][]Choice{"READ": c.choices}}},
				Options{Brief: true, Patience: 200 * time.Millisecond})
			for _, fd := range b.fds {
				_ = syscall.Close(fd)
			}
			found := strings.Join(r.Problems, "\n")
			if c.want == "" && found != "" || !strings.Contains(found, c.want) {
				t.Errorf("found %q, want %q, in %v", found, c.want, r)
			}
			if r.Faults == 0 {
				t.Error("the sweep found no bug")
			}
		})
	}
}

// TestCounts counts results, and makes the chosen one fail.
func TestCounts(t *testing.T) {
	Need(t)
	var failed []int
	r := Sweep([]Operation{{Name: "eventfd", Run: func(t *Trial) {
		t.Arm()
		defer t.Disarm()
		for i := range 3 {
			fd, err := sys.EventFD()
			if t.Judge("eventfd", err) {
				_ = fd.Close()
			} else {
				failed = append(failed, i)
			}
		}
	}, Instead: map[string][]Choice{"eventfd": Fails(syscall.EMFILE)}}}, Options{Long: true})
	if want := []int{0, 0, 1, 2, 1, 1, 2, 2, 2}; len(r.Problems) != 0 || r.Runs != 8 || r.Faults != len(want) || len(failed) != len(want) {
		t.Errorf("%v: %v, want %v; %v", r, failed, want, r.Problems)
	}
}
