// SPDX-License-Identifier: MIT

package watch

import (
	"errors"
	"fmt"
)

func (w *Watcher) useRing(string) error {
	return fmt.Errorf("watch: io_uring: %w", errors.ErrUnsupported)
}
