// SPDX-License-Identifier: MIT

package ufile

// FallocateMode says what [File.Fallocate] does with a range of a file.
type FallocateMode uint32

// Modes of Fallocate, with the values of fallocate(2), where each is described.
// Which of them a file system has is its own affair; those that it lacks answer
// an error that matches errors.ErrUnsupported.
const (
	// FallocateKeepSize leaves the size of the file as it is. It goes with the
	// others; alone it reserves blocks, inside the file and beyond its end.
	FallocateKeepSize FallocateMode = 1
	// FallocatePunchHole frees the blocks of a range, which reads as zeros. It
	// needs FallocateKeepSize.
	FallocatePunchHole FallocateMode = 2
	// FallocateCollapse removes a range, so that what follows moves forward. It
	// must begin and end at blocks of the file system. (Linux 3.15)
	FallocateCollapse FallocateMode = 8
	// FallocateZero makes a range read as zeros and keeps blocks for it. (Linux
	// 3.15)
	FallocateZero FallocateMode = 16
	// FallocateInsert makes room inside the file, so that what follows moves
	// back. It must begin and end at blocks of the file system. (Linux 4.1)
	FallocateInsert FallocateMode = 32
	// FallocateUnshare gives a range blocks of its own that it shares with
	// copies of the file. (Linux 4.8)
	FallocateUnshare FallocateMode = 64
	// FallocateWriteZeroes makes a range read as zeros that are written, so that
	// later writes need no metadata. (Linux 6.17)
	FallocateWriteZeroes FallocateMode = 128
)

// Fallocate changes the space of n bytes from off, as fallocate(2). The mode 0
// reserves it, so that writing there cannot fail for want of space, and
// extends the file where it is shorter. It is a plain system call, because a
// ring hands it to a worker thread; Close waits for it.
//
// Errors are *fs.PathError with the Op "fallocate"; ENOSPC means that nothing
// that could be relied on was reserved. Where there is no such call the error
// matches errors.ErrUnsupported.
func (f *File) Fallocate(mode FallocateMode, off, n int64) error {
	return f.hold("fallocate", func(fd int) error { return fallocate(fd, mode, off, n) })
}

// Allocate reserves space for n bytes from off, and extends the file where it
// is shorter: [File.Fallocate] with the mode 0.
func (f *File) Allocate(off, n int64) error { return f.Fallocate(0, off, n) }

// Reserve is Allocate that leaves the size of the file as it is: the space
// beyond the end is there for appends.
func (f *File) Reserve(off, n int64) error { return f.Fallocate(FallocateKeepSize, off, n) }

// PunchHole frees the space of n bytes from off, which then read as zeros. The
// size of the file stays.
func (f *File) PunchHole(off, n int64) error {
	return f.Fallocate(FallocatePunchHole|FallocateKeepSize, off, n)
}

// ZeroRange makes n bytes from off read as zeros, as a rule without writing
// them, keeps space for them, and extends the file where it is shorter.
func (f *File) ZeroRange(off, n int64) error { return f.Fallocate(FallocateZero, off, n) }
