// SPDX-License-Identifier: MIT

//go:build !linux

package sqlitevfs

import (
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/ringside-io/ringside/sqlitevfs/internal/disk"
)

// descriptor returns -1: on this system the default VFS makes all calls.
func descriptor(any) int { return -1 }

func willNeed(int, int64, int64) {}

func unwrittenBlock(int, io.ReaderAt, int64) (int64, error) { return 0, errors.ErrUnsupported }

func lockWriter(string) (unlock func(), ok bool) { return func() {}, false }

func freeMemory() int { return 0 }

func openAhead(string, int) (*os.File, error) { return nil, errors.ErrUnsupported }

func fileID(int) disk.ID { return disk.ID{} }

func identify(int) identity { return identity{} }

func isAt(int, string) (bool, error) { return false, errors.ErrUnsupported }

func syncfs(int) error { return errors.ErrUnsupported }

type sharing int

const (
	noSharing sharing = iota
	bySyncFSAndFlush
	bySyncFSNotRemovals
)

func sharingOf(int) (sharing, string) { return noSharing, "only Linux has syncfs" }

func syncfsReports() bool { return false }

func written(int) error { return errors.ErrUnsupported }

func unsupportedSync(err error) bool {
	errno, ok := errors.AsType[syscall.Errno](err)
	return ok && errno == syscall.EINVAL
}

// wholeSectors fails: only Linux reports sector sizes.
func wholeSectors(int) error {
	return errors.New("atomic4k=on: only Linux reports the sector size of a device: leave it off, or use atomic4k=trust if you know that the device writes 4 KiB whole")
}
