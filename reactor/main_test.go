// SPDX-License-Identifier: MIT

package reactor

import (
	"os"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

func TestMain(m *testing.M) { os.Exit(ringtest.Main(m)) }
