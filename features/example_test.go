// SPDX-License-Identifier: MIT

package features_test

import (
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/ringside-io/ringside/features"
)

// A program chooses its backend once, at its start, and logs why it does not use io_uring.
func Example() {
	log.SetOutput(os.Stderr)

	backend := "io_uring"
	if err := features.HaveMultishotRecv(); err != nil {
		backend = "epoll"
		var no *features.ForbiddenError
		switch {
		case errors.As(err, &no):
			log.Printf("io_uring is forbidden: %s. To allow it: %s", no.Reason, no.Remedy)
		case errors.Is(err, errors.ErrUnsupported):
			log.Printf("this kernel is too old: %v", err)
		default:
			log.Printf("not now: %v", err)
		}
	}
	fmt.Println("a backend was chosen:", backend != "")
	// Output: a backend was chosen: true
}
