// SPDX-License-Identifier: MIT

package ufile

import (
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
)

// statxFile asks about an open file.
func statxFile(fd int, f *os.File, mask StatxMask) (StatxInfo, error) {
	st, err := statxCall(fd, mask)
	if err != nil && statxRefused(err) {
		info, err := f.Stat()
		if err != nil {
			return StatxInfo{}, cause(err)
		}
		return statxOfInfo(info), nil
	}
	return st, err
}

// statxRefused reports whether an error means that the call is missing or forbidden.
// Filters of older container runtimes answer EPERM, which the call itself has
// no reason to.
func statxRefused(err error) bool { return err == syscall.ENOSYS || err == syscall.EPERM }

func statxCall(fd int, mask StatxMask) (StatxInfo, error) {
	var b sys.StatxBuf
	if err := sys.Statx(fd, "", sys.AtEmptyPath, uint32(mask&StatxAll), &b); err != nil {
		return StatxInfo{}, err
	}
	return StatxInfo{
		Mask: StatxMask(b.Mask),
		Mode: fileMode(uint32(b.Mode)), Nlink: b.Nlink, UID: b.Uid, GID: b.Gid,
		Ino: b.Ino, Size: int64(b.Size), Blocks: int64(b.Blocks), BlockSize: int64(b.Blksize),
		Atime: statxTime(b.Atime.Sec, b.Atime.Nsec, b.Mask, StatxAtime), Btime: statxTime(b.Btime.Sec, b.Btime.Nsec, b.Mask, StatxBtime),
		Ctime: statxTime(b.Ctime.Sec, b.Ctime.Nsec, b.Mask, StatxCtime), Mtime: statxTime(b.Mtime.Sec, b.Mtime.Nsec, b.Mask, StatxMtime),
		DevMajor: b.Dev_major, DevMinor: b.Dev_minor, RdevMajor: b.Rdev_major, RdevMinor: b.Rdev_minor,
		MountID: b.Mnt_id, Subvol: b.Subvol,
		DIOMemAlign: b.Dio_mem_align, DIOOffsetAlign: b.Dio_offset_align, DIOReadOffsetAlign: b.Dio_read_offset_align,
		AtomicWriteUnitMin: b.Atomic_write_unit_min, AtomicWriteUnitMax: b.Atomic_write_unit_max,
		AtomicWriteUnitMaxOpt: b.Atomic_write_unit_max_opt, AtomicWriteSegmentsMax: b.Atomic_write_segments_max,
	}, nil
}

// statxTime converts a time; it is zero if the kernel did not fill it in.
func statxTime(sec int64, nsec uint32, mask uint32, field StatxMask) time.Time {
	if StatxMask(mask)&field == 0 {
		return time.Time{}
	}
	return time.Unix(sec, int64(nsec))
}

// fileMode converts the mode of stat(2), as os does.
func fileMode(mode uint32) fs.FileMode {
	m := fs.FileMode(mode & 0o777)
	switch mode & syscall.S_IFMT {
	case syscall.S_IFBLK:
		m |= fs.ModeDevice
	case syscall.S_IFCHR:
		m |= fs.ModeDevice | fs.ModeCharDevice
	case syscall.S_IFDIR:
		m |= fs.ModeDir
	case syscall.S_IFIFO:
		m |= fs.ModeNamedPipe
	case syscall.S_IFLNK:
		m |= fs.ModeSymlink
	case syscall.S_IFSOCK:
		m |= fs.ModeSocket
	}
	for bit, flag := range map[uint32]fs.FileMode{syscall.S_ISUID: fs.ModeSetuid, syscall.S_ISGID: fs.ModeSetgid, syscall.S_ISVTX: fs.ModeSticky} {
		if mode&bit != 0 {
			m |= flag
		}
	}
	return m
}

// addSysInfo adds the fields of stat(2).
func addSysInfo(st *StatxInfo, info fs.FileInfo) {
	b, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return
	}
	st.Mask = StatxBasic
	st.Nlink, st.UID, st.GID, st.Ino = uint32(b.Nlink), b.Uid, b.Gid, b.Ino
	st.Blocks, st.BlockSize = b.Blocks, int64(b.Blksize)
	st.Atime, st.Ctime = time.Unix(b.Atim.Unix()), time.Unix(b.Ctim.Unix())
	dev, rdev := uint64(b.Dev), uint64(b.Rdev)
	st.DevMajor, st.DevMinor = sys.Major(dev), sys.Minor(dev)
	st.RdevMajor, st.RdevMinor = sys.Major(rdev), sys.Minor(rdev)
}
