// SPDX-License-Identifier: MIT

package datafile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// ErrCached is matched by the error of [ProbeEvict] where a file cannot be evicted.
var ErrCached = errors.New("the file stays in memory")

// ReadIn reads the first span bytes of the file, so that they lie in the page cache.
func ReadIn(ctx context.Context, path string, span int64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	buf := make([]byte, chunkSize)
	for off := int64(0); off < span; off += chunkSize {
		if err := ctx.Err(); err != nil {
			return err
		}
		want := buf[:min(chunkSize, span-off)]
		if n, err := f.ReadAt(want, off); err != nil && (err != io.EOF || n < len(want)) {
			return fmt.Errorf("read the file into the page cache: %w", err)
		}
	}
	return nil
}

// Evict forgets the file's cached pages where the system can do that, so that an O_DIRECT read
// meets none of them.
func Evict(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return dropCache(f)
}

// SizeOf returns the length of a regular file or of a block device, in bytes.
func SizeOf(path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if mode := info.Mode(); !mode.IsRegular() && mode&(os.ModeDevice|os.ModeCharDevice) != os.ModeDevice {
		return 0, fmt.Errorf("%s is neither a regular file nor a block device", path)
	}
	return f.Seek(0, io.SeekEnd)
}
