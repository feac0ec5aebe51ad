// SPDX-License-Identifier: MIT

package features_test

import (
	"os"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

func TestMain(m *testing.M) {
	if spec := os.Getenv(childEnv); spec != "" {
		os.Exit(child(spec))
	}
	os.Exit(ringtest.Main(m))
}
