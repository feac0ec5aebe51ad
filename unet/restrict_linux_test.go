// SPDX-License-Identifier: MIT

package unet

import (
	"testing"

	"github.com/ringside-io/ringside/internal/ringtest"
	"github.com/ringside-io/ringside/uring"
)

// TestRestrictedRing tries what a restricted ring refuses; what it must not
// refuse is in TestStress.
func TestRestrictedRing(t *testing.T) {
	ringtest.NeedKernel(t, "RESTRICTIONS", "5.10")
	s, err := NewSystem(Options{Mode: ModeRing, Restrict: true})
	if err != nil {
		t.Fatal(err)
	}
	l := &loop{system: s, useRing: true}
	if !l.openRing() {
		t.Fatal("no ring")
	}
	defer l.ring.Close()
	ringtest.WantRestricted(t, l.ring, uring.OpRecv)
}
