// SPDX-License-Identifier: MIT

package datafile

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// probes is how many pages of the file are looked at, wherever they lie.
const probes = 16

// ProbeEvict evicts the file from the page cache and looks whether it is gone. If not the error
// matches [ErrCached]: a file system in memory has nowhere else to keep it.
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
	for range evictTries {
		if err = tryEvict(f, size); !errors.Is(err, ErrCached) {
			return err
		}
		// What is not yet written stays.
		if err := f.Sync(); err != nil {
			return err
		}
	}
	return err
}

// evictTries is how often eviction is tried: a page in use stays.
const evictTries = 5

// tryEvict reads some pages, evicts the file and looks whether they are gone.
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

// isCached reports whether a page can be read without waiting. A file system that cannot say is
// asked whether it lies in memory.
func isCached(f *os.File, page []byte, off int64) (bool, error) {
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

// dropCache asks the kernel to forget the clean cached pages of the file. It changes no content;
// a file system that ignores the advice only keeps pages that O_DIRECT does not use anyway.
func dropCache(f *os.File) error { return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) }
