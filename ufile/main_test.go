// SPDX-License-Identifier: MIT

package ufile

import (
	"os"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

func TestMain(m *testing.M) {
	testLogged = func() bool { return false } // these tests judge what other programs get
	os.Exit(ringtest.Main(m))
}
