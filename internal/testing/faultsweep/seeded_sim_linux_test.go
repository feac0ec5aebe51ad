// SPDX-License-Identifier: MIT

package faultsweep

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/kernelsim"
	"github.com/ringside-io/ringside/uring"
)

// careless uses a simulated ring with a chosen bug: it reads a file, two bytes at a time.
type careless struct {
	path string

	sharesBuffer, resubmitsNothing, forgets bool

	bufs [][]byte // the kernel may have it until the operation ends
}

func (b *careless) run(t *Trial) {
	f, err := os.Open(b.path)
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer f.Close()
	r := t.Kernel().Open(kernelsim.RingOptions{Entries: 4, CQEntries: 8})
	defer r.Close()
	p := make([]byte, 8)
	b.bufs = append(b.bufs, p)
	t.Arm()
	defer t.Disarm()
	for n, begun := 0, uint64(0); n < len(p); {
		begun++
		part := p[n:min(n+2, len(p))]
		r.SQE().Read(uring.Fd(int(f.Fd())), part, int64(n)).SetUserData(begun)
		if b.sharesBuffer {
			r.SQE().Read(uring.Fd(int(f.Fd())), part, int64(n)).SetUserData(begun + 100)
		}
		var c uring.CQE
		if c, err = completion(r, begun); err == nil {
			err = c.Err()
		}
		if c, fired := t.Choice(); err != nil && (!c.Passing || !fired || b.resubmitsNothing) {
			t.Judge("read", err)
			return
		} else if err == nil && b.forgets {
			r.SQE().Nop().SetUserData(7)
			_, _ = r.Submit() // and no goroutine waits for the operation
		}
		n += max(int(c.Res), 0)
	}
	if _, fired := t.Choice(); string(p) != "12345678" {
		t.Errorf("read %q, a fault %v", p, fired)
	}
}

// completion submits and returns the completion with the given user data.
func completion(r *kernelsim.Ring, number uint64) (uring.CQE, error) {
	for {
		_, err := r.Submit()
		if err != nil && err != syscall.EAGAIN && err != syscall.EBUSY && err != syscall.ENOMEM {
			return uring.CQE{}, err
		}
		var c [1]uring.CQE
		if r.Reap(c[:]) == 1 && c[0].UserData == number {
			return c[0], nil
		}
		runtime.Gosched() // the simulated kernel has its own goroutine
	}
}

// TestSeededBugsSimulated seeds one bug at a time above a simulated ring.
// Promise: tests/leaked-slot-found
func TestSeededBugsSimulated(t *testing.T) {
	if testing.Short() {
		t.Skip("checks the sweep, not the product: not with -short")
	}
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("12345678"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		bug  careless
		want string
	}{
		{"none", careless{}, ""},
		{"a buffer that two operations share", careless{sharesBuffer: true}, "is still that of"},
		{"an unrequested cancellation taken for the end", careless{resubmitsNothing: true}, "although the fault passes"},
		{"a slot that is forgotten", careless{forgets: true}, "closed with an operation in flight"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := c.bug
			b.path = path
			r := Sweep([]Operation{{Name: "read", Run: b.run, Sim: true}}, Options{Patience: 5 * time.Second})
			runtime.KeepAlive(&b)
			found := strings.Join(r.Problems, "\n")
			if c.want == "" && found != "" || !strings.Contains(found, c.want) {
				t.Errorf("found %q, want %q, in %v", found, c.want, r)
			}
			if c.want == "" && r.Faults == 0 {
				t.Error("the sweep found no bug")
			}
		})
	}
}
