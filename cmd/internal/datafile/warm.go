// SPDX-License-Identifier: MIT

package datafile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// ErrCached is matched by the error of [ProbeEvict] if a file cannot be evicted.
var ErrCached = errors.New("the file could not be evicted from the page cache")

// ReadIn reads the first span bytes of the file into the page cache.
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

// Evict evicts the file's cached pages on systems that support it, so that an O_DIRECT read does
// not find any.
func Evict(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return dropCache(f)
}

// EvictWritten is [Evict] after it has written dirty pages, which stay in the page cache otherwise.
func EvictWritten(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	return Evict(path)
}

// Copy creates a copy of a file.
func Copy(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, in)
	return err
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
	size, err := f.Seek(0, io.SeekEnd)
	if err == nil && size == 0 {
		err = fmt.Errorf("%s is empty", path)
	}
	return size, err
}
