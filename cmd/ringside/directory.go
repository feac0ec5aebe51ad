// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// wantDirectory says before anything is measured that what a flag names is no directory. An empty
// name is the default.
func wantDirectory(flag, dir string) error {
	if dir == "" {
		return nil
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s %s: no such directory: make it, or name another one", flag, dir)
	case err != nil:
		return fmt.Errorf("%s: %w", flag, err)
	case !info.IsDir():
		return fmt.Errorf("%s %s: is no directory", flag, dir)
	}
	return nil
}
