// SPDX-License-Identifier: MIT

package main

import (
	"io"
	"os"

	"golang.org/x/term"
)

// isTerminal reports whether w is a terminal that understands control sequences.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}

// wantColor follows the NO_COLOR convention, and never colours what goes into a file or a pipe.
func wantColor(w io.Writer) bool { return os.Getenv("NO_COLOR") == "" && isTerminal(w) }
