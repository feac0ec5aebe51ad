// SPDX-License-Identifier: MIT

//go:build !unix

package measure

import (
	"io"
	"os"
)

// WorkerInput returns the standard input for [ServeWorker].
func WorkerInput() io.Reader { return os.Stdin }
