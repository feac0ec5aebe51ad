// SPDX-License-Identifier: MIT

package simkern

import (
	"syscall"

	"github.com/ringside-io/ringside/internal/testing/kernelsim"
	"github.com/ringside-io/ringside/uring"
)

// Plan says what goes wrong. Its functions are called with the kernel's lock held
// and may be nil.
type Plan struct {
	// Op is asked about each operation that begins, and about each further shot of
	// one that has several. A fate's Stale means nothing here.
	Op func(e *uring.RawSQE) kernelsim.Fate
	// Enter is asked how many of n entries shall be taken, or with which error
	// none; EBADF is for good.
	Enter func(n int) (take int, errno syscall.Errno)
	// Wait reports whether a wait ends without a completion, Wake whether those who
	// wait learn later of one, and Overflow whether a completion finds no room.
	Wait, Wake, Overflow func() bool
}

// while is how many steps something takes that does not happen at once.
const while = 6

func happens(f func() bool) bool { return f != nil && f() }
