// SPDX-License-Identifier: MIT

package event

import (
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

// TestRestrictedRing tries operations that the ring of a restricted server refuses. All
// tests that run in every mode cover the operations that it must not refuse.
// Promise: unet/event/options-restrict-rings
func TestRestrictedRing(t *testing.T) {
	ringtest.NeedKernel(t, "RESTRICTIONS", "5.10")
	r := ringtest.Open(t, &uring.Options{Entries: 8, Restrict: &ringRestrictions})
	ringtest.WantRestricted(t, r, ringRestrictions.Ops...)
}
