// SPDX-License-Identifier: MIT

package uring_test

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

func init() {
	ledgerRegister(uring.OpRegisterIOWQAffinity, row{since: "5.14", uses: []string{"Ring.SetIOWQAffinity"}, kernel: kernelRegisterIOWQAffinity})
	ledgerRegister(uring.OpUnregisterIOWQAffinity, row{since: "5.14", uses: []string{"Ring.ClearIOWQAffinity"}, kernel: kernelUnregisterIOWQAffinity})
	ledgerRegister(uring.OpRegisterIOWQMaxWorkers, row{since: "5.15", uses: []string{"Ring.SetIOWQMaxWorkers"}, kernel: kernelRegisterIOWQMaxWorkers})
}

// ctlOwnWorkers returns the worker threads of the calling thread. Their names contain its
// number.
func ctlOwnWorkers(t testing.TB) []int {
	t.Helper()
	return ctlThreads(t, fmt.Sprintf("iou-wrk-%d\n", ctlThreadID()))
}

// ctlFresh runs f on a thread without worker threads. A thread that the runtime offers may
// have some from earlier tests; then ctlFresh ends that thread and tries again.
func ctlFresh(t testing.TB, f func()) {
	t.Helper()
	for done := false; !done; {
		ctlElsewhere(func() {
			if len(ctlOwnWorkers(t)) == 0 {
				done = true
				f()
			}
		})
	}
}

// ctlWorkers makes n worker threads of the calling thread wait, each for the other end of a
// FIFO, and calls look when the wanted number exists.
func ctlWorkers(t testing.TB, r *uring.Ring, n, want int, look func(tids []int)) {
	t.Helper()
	var names []string
	var paths []uring.Path
	for range n {
		name := ctlFIFO(t)
		path, err := uring.NewPath(name)
		ctlOK(t, "path", err)
		names, paths = append(names, name), append(paths, path)
		ctlNext(t, r).OpenAt(uring.AtCWD, path, os.O_RDONLY, 0).SetFlags(uring.SQEAsync)
	}
	ctlSubmit(t, r, n)
	ctlUntil(t, "worker threads", func() bool { return len(ctlOwnWorkers(t)) >= want })
	look(ctlOwnWorkers(t))
	for _, name := range names { // opened for reading and writing, a FIFO never waits
		ctlOpen(t, name, os.O_RDWR)
	}
	for _, c := range ringtest.Await(t, r, n) {
		if c.Res < 0 {
			t.Fatalf("open a FIFO: %v", c.Err())
		}
		ctlClose(t, int(c.Res))
	}
	runtime.KeepAlive(paths)
}

func kernelRegisterIOWQAffinity(t *testing.T) {
	ringtest.NeedKernel(t, "IOWQ_AFF", "5.14")
	for _, cpu := range ctlCPUs(t, 0) {
		ctlFresh(t, func() {
			r := ringtest.Open(t, &uring.Options{})
			ctlOK(t, "bind", r.SetIOWQAffinity([]int{cpu}))
			ctlWorkers(t, r, 2, 1, func(tids []int) {
				for _, tid := range tids {
					if got := ctlCPUs(t, tid); !slices.Equal(got, []int{cpu}) {
						t.Errorf("a worker thread runs on %v, want %d", got, cpu)
					}
				}
			})
			ctlOK(t, "close", r.Close())
		})
	}
	r := ctlRing(t, uring.Options{})
	for _, bad := range [][]int{nil, {-1}, {0, 1 << 20}} {
		if r.SetIOWQAffinity(bad) == nil {
			t.Errorf("processors %v are accepted", bad)
		}
	}
}

func kernelUnregisterIOWQAffinity(t *testing.T) {
	ringtest.NeedKernel(t, "IOWQ_AFF", "5.14")
	cpus := ctlCPUs(t, 0)
	ctlFresh(t, func() {
		r := ringtest.Open(t, &uring.Options{})
		ctlOK(t, "bind", r.SetIOWQAffinity(cpus[:1]))
		ctlOK(t, "clear", r.ClearIOWQAffinity())
		ctlWorkers(t, r, 1, 1, func(tids []int) {
			if got := ctlCPUs(t, tids[0]); !slices.Equal(got, cpus) {
				t.Errorf("a worker thread runs on %v, want %v", got, cpus)
			}
		})
		ctlOK(t, "clear twice", r.ClearIOWQAffinity())
		ctlOK(t, "close", r.Close())
	})
}

func kernelRegisterIOWQMaxWorkers(t *testing.T) {
	ringtest.NeedKernel(t, "IOWQ_MAX_WORKERS", "5.15")
	ctlFresh(t, func() {
		r := ringtest.Open(t, &uring.Options{})
		bounded, unbounded, err := r.SetIOWQMaxWorkers(2, 0)
		if err != nil || bounded <= 0 || unbounded <= 0 {
			t.Fatalf("limits before: %d and %d, %v", bounded, unbounded, err)
		}
		a, b, err := r.SetIOWQMaxWorkers(0, 3)
		if a != 2 || b != unbounded || err != nil {
			t.Errorf("limits %d and %d, %v; want 2 and %d", a, b, err, unbounded)
		}
		if a, b, err = r.SetIOWQMaxWorkers(0, 0); a != 2 || b != 3 || err != nil {
			t.Errorf("limits %d and %d, %v; want 2 and 3", a, b, err)
		}
		ctlWorkers(t, r, 6, 2, func(tids []int) {
			if len(tids) != 2 {
				t.Errorf("%d worker threads, want 2", len(tids))
			}
		})
		if a, b, err := r.SetIOWQMaxWorkers(-1, 5); a != 0 || b != 0 {
			t.Errorf("limits %d and %d with error %v", a, b, err)
		} else {
			ctlErrno(t, "a negative limit", err, syscall.EINVAL)
		}
		ctlOK(t, "close", r.Close())
	})
}
