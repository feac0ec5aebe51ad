// SPDX-License-Identifier: MIT

package ufile

import (
	"io/fs"
	"os"
	"time"
)

// StatxInfo is what the kernel knows of a file, as statx(2) tells it. Mask says
// which fields hold an answer; those of the others are zero.
type StatxInfo struct {
	// Mask has the bits of the fields that hold an answer, which may be fewer or
	// more than were asked for.
	Mask StatxMask
	// Attributes are the file's, and AttributesMask has those that the file
	// system knows of: what is in neither is not known to be off.
	Attributes     StatxAttributes
	AttributesMask StatxAttributes

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

// Fields to ask for and to have been answered. What a kernel or a file system
// does not know it leaves out of the answer.
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

	// StatxBasic is what stat(2) tells.
	StatxBasic = StatxBtime - 1
	// StatxAll asks for everything.
	StatxAll = StatxDIOReadAlign<<1 - 1
)

// StatxAttributes is a set of attributes of a file.
type StatxAttributes uint64

// Attributes, with the values of statx(2).
const (
	StatxCompressed  StatxAttributes = 0x4      // the file system compresses it
	StatxImmutable   StatxAttributes = 0x10     // nobody can change it
	StatxAppend      StatxAttributes = 0x20     // it can only grow
	StatxNoDump      StatxAttributes = 0x40     // backups leave it out
	StatxEncrypted   StatxAttributes = 0x800    // the file system encrypts it
	StatxAutomount   StatxAttributes = 0x1000   // to be mounted when used
	StatxMountRoot   StatxAttributes = 0x2000   // the root of a mount (Linux 5.8)
	StatxVerity      StatxAttributes = 0x100000 // protected by fs-verity (Linux 5.5)
	StatxDAX         StatxAttributes = 0x200000 // in memory that is storage (Linux 5.8)
	StatxAtomicWrite StatxAttributes = 0x400000 // takes atomic writes (Linux 6.11)
)

// StatxFlags say how to ask.
type StatxFlags uint32

// Flags of Statx, with the values of statx(2).
const (
	StatxNoFollow    StatxFlags = 0x100  // describe a symbolic link at the end of the name itself
	StatxNoAutomount StatxFlags = 0x800  // do not mount what the name would mount
	StatxForceSync   StatxFlags = 0x2000 // ask the server of a network file system
	StatxDontSync    StatxFlags = 0x4000 // be content with what is known here
)

// Statx describes the file. It asks for the fields in mask; see [StatxInfo] for
// what is answered. It is a plain system call, because a ring hands it to a
// worker thread. Errors are *fs.PathError with the Op "statx".
//
// Linux 4.11. Elsewhere, and where the call is forbidden, it tells what
// [File.Stat] does.
func (f *File) Statx(mask StatxMask, flags StatxFlags) (StatxInfo, error) {
	var st StatxInfo
	err := f.hold("statx", func(fd int) (err error) {
		st, err = statxFile(fd, f.f, mask, flags)
		return err
	})
	return st, err
}

// Statx describes the file that a name leads to; see [File.Statx]. Relative
// names start at the working directory.
func Statx(name string, mask StatxMask, flags StatxFlags) (StatxInfo, error) {
	st, err := statxName(name, mask, flags)
	return st, pathError("statx", name, err)
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

// pathError makes an error of a bare one, and nil of nil.
func pathError(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// statxOfInfo says what os knows of a file.
func statxOfInfo(info fs.FileInfo) StatxInfo {
	st := StatxInfo{
		Mask: StatxType | StatxMode | StatxSize | StatxMtime,
		Mode: info.Mode(), Size: info.Size(), Mtime: info.ModTime(),
	}
	addSysInfo(&st, info)
	return st
}

// statxByOs describes a file by what os knows of it. The error is bare.
func statxByOs(name string, flags StatxFlags) (StatxInfo, error) {
	look := os.Stat
	if flags&StatxNoFollow != 0 {
		look = os.Lstat
	}
	info, err := look(name)
	if err != nil {
		return StatxInfo{}, cause(err)
	}
	return statxOfInfo(info), nil
}

// cause takes an error of os out of what says to whom it happened.
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
