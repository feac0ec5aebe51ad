// SPDX-License-Identifier: MIT

// Package ringloop holds what every loop that drives a ring needs: opening the ring where memory is
// short, waiting in Go's netpoller, distinguishing temporary errors of a submission from permanent
// ones, and keeping memory that the kernel may still use. Each loop has its own policies (when to
// submit, how long to spin, which goroutine to wake), because their measurements differ.
package ringloop

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/uring"
)

// LongYield is the duration from which a yield means that goroutines compute on every P: each runs for
// a time slice of 10 ms, and an ordinary yield takes microseconds.
const LongYield = 4 * time.Millisecond

// fewest is the smallest number of SQEs of a ring, unless its owner asks for fewer.
const fewest = 16

// Open opens a ring. While the kernel returns ENOMEM it halves both queues, the CQ down to least
// entries (the SQ where Options leave the CQ to the kernel). Rings count against RLIMIT_MEMLOCK
// before Linux 5.12 and again in 6.18, and a small ring is better than none.
func Open(o uring.Options, least uint32) (*uring.Ring, error) {
	for {
		r, err := uring.Open(o)
		smaller := o
		if o.CQEntries > 0 {
			smaller.CQEntries = max(o.CQEntries/2, min(least, o.CQEntries))
			smaller.Entries = max(o.Entries/2, min(fewest, o.Entries))
		} else {
			smaller.Entries = max(o.Entries/2, min(least, o.Entries))
		}
		if !errors.Is(err, syscall.ENOMEM) || smaller.CQEntries == o.CQEntries && smaller.Entries == o.Entries {
			return r, explain(err)
		}
		o = smaller
	}
}

// explain adds the name of the limit that the error of an opening may come from.
func explain(err error) error {
	switch {
	case errors.Is(err, syscall.ENOMEM):
		return fmt.Errorf("%w; rings count as locked memory on some kernels: raise RLIMIT_MEMLOCK "+
			"(ulimit -l, systemd: LimitMEMLOCK=, docker: --ulimit memlock=), or open fewer rings", err)
	case errors.Is(err, syscall.EMFILE):
		return fmt.Errorf("%w; raise RLIMIT_NOFILE (ulimit -n)", err)
	}
	return err
}

// Temporary reports whether a submission that failed with err succeeds later: the kernel lacked
// memory or room for completions, or a signal interrupted it.
func Temporary(err error) bool {
	return errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EBUSY) ||
		errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.EINTR)
}

// leaked holds the arguments of Leak.
var leaked struct {
	sync.Mutex
	owners []any
}

// Leak keeps owner, and all memory that it refers to, for the life of the process. A loop whose ring
// has failed with operations in flight calls it with itself: the kernel may still write to their
// buffers. A second call with the same owner, a pointer, has no effect.
func Leak(owner any) {
	leaked.Lock()
	defer leaked.Unlock()
	if !slices.Contains(leaked.owners, owner) {
		leaked.owners = append(leaked.owners, owner)
	}
}

// Leaked reports whether Leak was called with owner.
func Leaked(owner any) bool {
	leaked.Lock()
	defer leaked.Unlock()
	return slices.Contains(leaked.owners, owner)
}
