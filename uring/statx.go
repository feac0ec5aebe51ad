// SPDX-License-Identifier: MIT

package uring

import "time"

// Statx is struct statx, which [SQE.Statx] fills; see statx(2). Fields of newer
// kernels are in the tail.
type Statx struct {
	Mask           uint32
	Blksize        uint32
	Attributes     uint64
	Nlink          uint32
	UID, GID       uint32
	Mode           uint16 // file type and permissions, as in stat(2)
	_              uint16
	Ino            uint64
	Size           uint64 // bytes
	Blocks         uint64 // of 512 bytes
	AttributesMask uint64
	Atime          StatxTime
	Btime          StatxTime // creation
	Ctime          StatxTime
	Mtime          StatxTime
	RdevMajor      uint32
	RdevMinor      uint32
	DevMajor       uint32
	DevMinor       uint32
	MntID          uint64
	DioMemAlign    uint32 // bytes; 0: no O_DIRECT (6.1)
	DioOffsetAlign uint32 // bytes (6.1)
	_              [12]uint64
}

// StatxTime is struct statx_timestamp.
type StatxTime struct {
	Sec  int64
	Nsec uint32
	_    int32
}

// Time converts t.
func (t StatxTime) Time() time.Time { return time.Unix(t.Sec, int64(t.Nsec)) }
