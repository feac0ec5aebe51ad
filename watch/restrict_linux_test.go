// SPDX-License-Identifier: MIT

package watch

import (
	"runtime"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

// TestRestrictedRing tries operations that a restricted ring refuses; TestSuite has the
// operations that it must not refuse.
// Promise: watch/options-restrict-ring
func TestRestrictedRing(t *testing.T) {
	ringtest.NeedKernel(t, "DEFER_TASKRUN", "6.1")
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r, err := openRing(false, true)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ringtest.WantRestricted(t, r, uring.OpPollAdd, uring.OpPollRemove, uring.OpAsyncCancel)
}
