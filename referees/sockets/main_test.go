// SPDX-License-Identifier: MIT

package sockets

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/ringside-io/ringside/features"
)

// patience limits waits that only take long after a failure.
const patience = time.Minute

// needRing skips the test if io_uring cannot be used. CI jobs in which it works set the variable
// that makes this a failure.
func needRing(t testing.TB, err error) {
	t.Helper()
	if os.Getenv("RINGSIDE_MUST") == "io_uring" {
		t.Fatalf("io_uring must work here: %v", err)
	}
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, features.ErrForbidden) {
		t.Skipf("needs io_uring: %v", err)
	}
}
