// SPDX-License-Identifier: MIT

package main

import (
	"os"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// asProgram makes the test binary the program itself: a load starts it.
const asProgram = "TENANTS_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	if err := os.Setenv(asProgram, "1"); err != nil {
		panic(err)
	}
	os.Exit(ringtest.Main(m))
}
