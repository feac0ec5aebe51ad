// SPDX-License-Identifier: MIT

package datafile

import (
	"errors"
	"os"

	"github.com/ringside-io/ringside/internal/sys"
	"golang.org/x/sys/unix"
)

// probes is the number of pages that are checked, spread over the file.
const probes = 16

// ProbeEvict evicts the file from the page cache and checks the result. If the file is still
// cached, the error matches [ErrCached]: a file system in memory has no other place for it.
func ProbeEvict(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := SizeOf(path)
	if err != nil {
		return err
	}
	// Pages that are being read ahead would stay. The advice is for this descriptor only.
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_RANDOM); err != nil {
		return os.NewSyscallError("fadvise", err)
	}
	for range evictTries {
		if err = tryEvict(f, size); !errors.Is(err, ErrCached) {
			return err
		}
		// Dirty pages cannot be evicted.
		if err := f.Sync(); err != nil {
			return err
		}
	}
	return err
}

// evictTries is the number of attempts to evict: a page in use stays.
const evictTries = 5

// tryEvict reads some pages, evicts the file and checks that they are gone.
func tryEvict(f *os.File, size int64) error {
	step := max(size/probes/UnitSize, 1) * UnitSize
	page := make([]byte, UnitSize)
	for off := int64(0); off+UnitSize <= size; off += step {
		if _, err := f.ReadAt(page, off); err != nil {
			return err
		}
	}
	if err := dropCache(f); err != nil {
		return os.NewSyscallError("fadvise", err)
	}
	looked, cached := 0, 0
	for off := int64(0); off+UnitSize <= size; off += step {
		here, err := isCached(f, page, off)
		if err != nil {
			return err
		}
		looked++
		if here {
			cached++
		}
	}
	if cached > looked/2 {
		return ErrCached
	}
	return nil
}

// isCached reports whether a page can be read without waiting. The read that must not wait starts
// one that waits, and on a fast disk finds what it has asked for. The page is therefore looked for
// by mincore first, which reads nothing. For a file that the caller may not write, mincore can report
// every page as cached. If the file system does not support the check, its type shows whether it is
// in memory.
func isCached(f *os.File, page []byte, off int64) (bool, error) {
	if pages, err := sys.Mincore(int(f.Fd()), off-off%int64(os.Getpagesize()), 1); err == nil && pages[0]&1 == 0 {
		return false, nil
	}
	_, err := unix.Preadv2(int(f.Fd()), [][]byte{page}, off, unix.RWF_NOWAIT)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, unix.EAGAIN):
		return false, nil
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
		return inMemory(f)
	}
	return false, os.NewSyscallError("preadv2", err)
}

func inMemory(f *os.File) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return false, os.NewSyscallError("fstatfs", err)
	}
	magic := uint32(st.Type) // a signed word on some systems
	return magic == unix.TMPFS_MAGIC || magic == unix.RAMFS_MAGIC, nil
}

// dropCache asks the kernel to drop the clean cached pages of the file. It does not change the
// content. A file system that ignores the advice only keeps pages that O_DIRECT does not use
// anyway.
func dropCache(f *os.File) error { return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) }
