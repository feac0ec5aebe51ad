// SPDX-License-Identifier: MIT

// Package options reads the command line of programs that have options only.
package options

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

// Parse is flag.Parse. It ends the program with code 2 if there are arguments: they would have no
// effect, as with an address without its option.
func Parse() {
	flag.Parse()
	Require(flag.NArg() == 0, "unexpected argument %q: everything is set by options, see -h", flag.Arg(0))
}

// Require ends the program with code 2 and a message unless ok is set.
func Require(ok bool, format string, args ...any) {
	if !ok {
		fmt.Fprintf(os.Stderr, "%s: %s\n", filepath.Base(os.Args[0]), fmt.Sprintf(format, args...))
		os.Exit(2)
	}
}
