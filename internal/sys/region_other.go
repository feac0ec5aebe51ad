// SPDX-License-Identifier: MIT

//go:build !linux

package sys

import "os"

func pageSize() int { return os.Getpagesize() }

// MapRing answers ENOSYS.
func MapRing(int, int64, int) (*Region, error) { return nil, Error("mmap", noSys) }

// MapAnon answers ENOSYS.
func MapAnon(int, bool) (*Region, error) { return nil, Error("mmap", noSys) }

// Unmap does nothing.
func (r *Region) Unmap() error { return nil }
