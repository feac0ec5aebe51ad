// SPDX-License-Identifier: MIT

package suite

import (
	"os"
	"runtime"
)

// DefaultDir returns where test files are created by default: in TMPDIR if that is
// set, else in /var/tmp, which unlike /tmp usually lies on a disk and not in memory.
func DefaultDir() string {
	if runtime.GOOS == "windows" || os.Getenv("TMPDIR") != "" {
		return os.TempDir()
	}
	const dir = "/var/tmp"
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return dir
	}
	return os.TempDir()
}
