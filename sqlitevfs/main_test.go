// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"flag"
	"os"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// long enables tests that take minutes: the torture tests of SQLite, and many seeds.
var long = flag.Bool("long", false, "run the long tests")

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == writerArg {
		os.Exit(writer(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == cutArg {
		os.Exit(cutProcess(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == tenantsArg {
		os.Exit(tenantsProcess(os.Args[2]))
	}
	flag.Parse()
	os.Exit(ringtest.Main(m))
}
