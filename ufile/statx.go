// SPDX-License-Identifier: MIT

package ufile

import (
	"io/fs"
	"os"
	"time"
)

// StatxInfo is the result of statx(2). Mask has the fields that the kernel filled
// in; the others are zero.
type StatxInfo struct {
	// Mask has the bits of the fields that were filled in, which may be fewer or
	// more than were asked for.
	Mask StatxMask

	Mode      fs.FileMode // StatxType and StatxMode
	Nlink     uint32      // hard links: StatxNlink
	UID, GID  uint32      // StatxUID, StatxGID
	Ino       uint64      // StatxIno
	Size      int64       // in bytes: StatxSize
	Blocks    int64       // allocated, in units of 512 bytes: StatxBlocks
	BlockSize int64       // preferred for transfers, in bytes; 0 where unknown

	Atime time.Time // last read: StatxAtime
	Btime time.Time // creation: StatxBtime
	Ctime time.Time // last change of the metadata: StatxCtime
	Mtime time.Time // last change of the data: StatxMtime

	DevMajor, DevMinor   uint32 // of the device that holds the file
	RdevMajor, RdevMinor uint32 // of the device that the file is

	// MountID names the mount: StatxMountID gives the number of
	// /proc/self/mountinfo, which is reused (Linux 5.8), StatxMountIDUnique one
	// that never is (6.8).
	MountID uint64
	// Subvol is the subvolume that holds the file: StatxSubvol. (Linux 6.10)
	Subvol uint64

	// DIOMemAlign and DIOOffsetAlign are the alignment in bytes that O_DIRECT
	// demands of memory, and of offsets and lengths; 0 means that this file has no
	// O_DIRECT: StatxDIOAlign. (Linux 6.1)
	DIOMemAlign, DIOOffsetAlign uint32
	// DIOReadOffsetAlign is DIOOffsetAlign for reads, 0 where it is the same:
	// StatxDIOReadAlign. (Linux 6.14)
	DIOReadOffsetAlign uint32

	// AtomicWriteUnitMin and AtomicWriteUnitMax bound, in bytes, a write with
	// RWF_ATOMIC, which reaches the disk as a whole or not at all; 0 means that
	// there are none: StatxWriteAtomic. (Linux 6.11)
	AtomicWriteUnitMin, AtomicWriteUnitMax uint32
	// AtomicWriteUnitMaxOpt is up to where such a write is fast, 0 where that is
	// AtomicWriteUnitMax. (Linux 6.16)
	AtomicWriteUnitMaxOpt uint32
	// AtomicWriteSegmentsMax is of how many pieces of memory it may be made.
	AtomicWriteSegmentsMax uint32
}

// StatxMask is a set of fields of [StatxInfo].
type StatxMask uint32

// Fields of [StatxInfo]. The kernel leaves out fields that it or the file system
// does not know.
const (
	StatxType   StatxMask = 1 << iota // type of the file, in Mode
	StatxMode                         // permissions, in Mode
	StatxNlink                        // Nlink
	StatxUID                          // UID
	StatxGID                          // GID
	StatxAtime                        // Atime
	StatxMtime                        // Mtime
	StatxCtime                        // Ctime
	StatxIno                          // Ino
	StatxSize                         // Size
	StatxBlocks                       // Blocks
	StatxBtime                        // Btime

	StatxMountID       // MountID (Linux 5.8)
	StatxDIOAlign      // DIOMemAlign, DIOOffsetAlign (Linux 6.1)
	StatxMountIDUnique // MountID (Linux 6.8)
	StatxSubvol        // Subvol (Linux 6.10)
	StatxWriteAtomic   // AtomicWrite fields (Linux 6.11)
	StatxDIOReadAlign  // DIOReadOffsetAlign (Linux 6.14)

	// StatxBasic has the fields of stat(2).
	StatxBasic = StatxBtime - 1
	// StatxAll asks for everything.
	StatxAll = StatxDIOReadAlign<<1 - 1
)

// Statx returns the fields of mask that are known of the file. It is a plain system
// call, because a ring passes it to a worker thread. Errors are *fs.PathError with
// the Op "statx".
//
// Linux 4.11. Elsewhere, and where the call is forbidden, it returns the fields that
// [File.Stat] has.
func (f *File) Statx(mask StatxMask) (StatxInfo, error) {
	var st StatxInfo
	err := f.hold("statx", func(fd int) (err error) {
		st, err = statxFile(fd, f.f, mask)
		return err
	})
	return st, err
}

// hold runs a call on the descriptor, which stays open for as long.
func (f *File) hold(op string, call func(fd int) error) error {
	if f.std() == nil {
		return os.ErrInvalid
	}
	if !f.lock.Acquire() {
		return f.pathError(op, os.ErrClosed)
	}
	defer f.lock.Release()
	if err := call(f.fd); err != nil {
		return f.pathError(op, err)
	}
	return nil
}

// statxOfInfo converts the result of [os.File.Stat].
func statxOfInfo(info fs.FileInfo) StatxInfo {
	st := StatxInfo{
		Mask: StatxType | StatxMode | StatxSize | StatxMtime,
		Mode: info.Mode(), Size: info.Size(), Mtime: info.ModTime(),
	}
	addSysInfo(&st, info)
	return st
}

// cause returns the error that an error of os wraps.
func cause(err error) error {
	switch e := err.(type) {
	case *fs.PathError:
		return e.Err
	case *os.LinkError:
		return e.Err
	case *os.SyscallError:
		return e.Err
	}
	return err
}
