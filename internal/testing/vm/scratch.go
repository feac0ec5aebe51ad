// SPDX-License-Identifier: MIT

package vm

import (
	"context"
	"os"
)

// scratchSize is the apparent size of the scratch disk; the file is sparse.
const scratchSize = 4 << 30

// scratchDevice is the guest's name of the first NVMe namespace.
const scratchDevice = "/dev/nvme0n1"

// makeScratch creates a sparse disk image with an empty ext4 at path.
func makeScratch(ctx context.Context, mkfs, path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := f.Truncate(scratchSize); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	// Lazy initialisation would write to the disk during the tests.
	_, err = output(ctx, "", mkfs, "-q", "-F", "-E", "lazy_itable_init=0,nodiscard", path)
	return err
}
