// SPDX-License-Identifier: MIT

//go:build !linux

package sys

import (
	"syscall"
	"time"
	"unsafe"

	"github.com/ringside-io/ringside/internal/abi"
)

// noSys is the error of a system without io_uring.
const noSys = syscall.ENOSYS

// Errors of Linux that no call returns here.
const (
	EBADFD = syscall.EINVAL
	EBADR  = syscall.ENOSYS
	ETIME  = syscall.ETIMEDOUT
)

// Setup returns ENOSYS.
func Setup(uint32, *abi.Params) (int, syscall.Errno) { return -1, noSys }

// Enter returns ENOSYS.
func Enter(int, uint32, uint32, uint32, unsafe.Pointer, uintptr) (int, syscall.Errno) {
	return -1, noSys
}

// RawCalls counts nothing.
type RawCalls struct{}

// Next does nothing.
func (*RawCalls) Next() {}

// EnterRaw returns ENOSYS.
func EnterRaw(int, uintptr, uintptr) (int, syscall.Errno) { return -1, noSys }

// EnterRawFor is [EnterRaw] with a number of completions.
func EnterRawFor(int, uintptr, uintptr, uintptr) (int, syscall.Errno) { return -1, noSys }

// Register returns ENOSYS.
func Register(int, uint32, unsafe.Pointer, uint32) (int, syscall.Errno) { return -1, noSys }

// EnterAt returns ENOSYS.
func EnterAt(int, uint32, uint32, uint32, uintptr, uintptr) (int, syscall.Errno) { return -1, noSys }

// MapRing returns ENOSYS.
func MapRing(int, int64, int) (*Region, error) { return nil, Error("mmap", noSys) }

// MapAnon returns ENOSYS.
func MapAnon(int, bool) (*Region, error) { return nil, Error("mmap", noSys) }

// Unmap does nothing.
func (r *Region) Unmap() error { return nil }

// HasTLS returns ENOSYS.
func HasTLS() syscall.Errno { return noSys }

// SockTLS returns ENOSYS.
func SockTLS(int) syscall.Errno { return noSys }

// SockTLSSend returns ENOSYS.
func SockTLSSend(int, []byte) syscall.Errno { return noSys }

// SockTLSRecord returns ENOSYS.
func SockTLSRecord(int, byte, []byte) syscall.Errno { return noSys }

// SockSendFile returns ENOSYS.
func SockSendFile(int, int, int) (int, syscall.Errno) { return 0, noSys }

// CopyFileRange returns ENOSYS.
func CopyFileRange(int, int64, int, int64, int) (int, error) { return 0, noSys }

// CloneRange returns ENOSYS.
func CloneRange(int, int64, int, int64, int64) error { return noSys }

// Splice returns ENOSYS.
func Splice(int, int64, int, int64, int) (int, error) { return 0, noSys }

// WaitPipe returns ENOSYS.
func WaitPipe(int, bool) error { return noSys }

// Reopen returns ENOSYS.
func Reopen(int) (*FD, error) { return nil, noSys }

// PunchHole returns ENOSYS.
func PunchHole(int, int64, int64) error { return noSys }

// NextData returns ENOSYS.
func NextData(int, int64) (start, end int64, err error) { return 0, 0, noSys }

// HaveFdatasync reports whether [Fdatasync] works.
const HaveFdatasync = false

// Fdatasync returns ENOSYS.
func Fdatasync(int) error { return noSys }

// SyncFileRange returns ENOSYS.
func SyncFileRange(int, int64, int64, int) error { return noSys }

// SetDirect does nothing.
func SetDirect(int, bool, uint32) bool { return false }

// Uncache does nothing.
func Uncache(int) {}

// LockRange returns ENOSYS.
func LockRange(int, int, int64, int64, bool) error { return noSys }

// Preadv returns ENOSYS.
func Preadv(int, [][]byte, int64) (int, error) { return 0, noSys }

// Pwritev returns ENOSYS.
func Pwritev(int, [][]byte, int64) (int, error) { return 0, noSys }

// PreadvNoWait returns ENOSYS.
func PreadvNoWait(int, [][]byte, int, int64) (int, syscall.Errno) { return 0, noSys }

// EpollEvent stands for struct epoll_event.
type EpollEvent struct {
	Events uint32
	data   uint64
}

// EpollPad is how many bytes lie between the two here.
const EpollPad = 0

// NewEpollEvent returns an event mask with user data.
func NewEpollEvent(events uint32, data uint64) EpollEvent { return EpollEvent{events, data} }

// EpollData returns the user data of an event.
func EpollData(ev *EpollEvent) uint64 { return ev.data }

// EpollCreate returns ENOSYS.
func EpollCreate() (*FD, error) { return nil, Error("epoll_create1", noSys) }

// EpollCtl returns ENOSYS.
func EpollCtl(ep, op, fd int, events uint32, data uint64) syscall.Errno { return noSys }

// EpollPollSockets returns ENOSYS.
func EpollPollSockets(ep int, events []EpollEvent) (int, syscall.Errno) { return 0, noSys }

// EpollWait returns ENOSYS.
func EpollWait(ep int, events []EpollEvent, millis int) (int, syscall.Errno) { return 0, noSys }

// EpollWait2 returns ENOSYS.
func EpollWait2(ep int, events []EpollEvent, timeout time.Duration) (int, syscall.Errno) {
	return 0, noSys
}

// EventFD returns ENOSYS.
func EventFD() (*FD, error) { return nil, Error("eventfd", noSys) }

// Signal does nothing.
func Signal(*FD) {}

// ThreadID returns 0.
func ThreadID() int { return 0 }

// ThreadExited knows nothing.
func ThreadExited(int) (exited, sure bool) { return false, true }

// AnswersCancelled knows nothing.
func AnswersCancelled(int) bool { return true }

// StatxBuf stands for struct statx.
type StatxBuf struct {
	Ino                  uint64
	Dev_major, Dev_minor uint32
	Ctime                struct {
		Sec  int64
		Nsec uint32
	}
}

// OpenRegular returns -1.
func OpenRegular(string, int) int { return -1 }

// What [StatxAt] is asked, which means nothing here.
const StatxIno, StatxCtime, AtEmptyPath, AtNoFollow = 0, 0, 0, 0

// StatxAt returns ENOSYS.
func StatxAt(int, *byte, int, uint32, *StatxBuf) error { return noSys }

// PreadNoWait returns ENOSYS.
func PreadNoWait(int, []byte, int64) (int, syscall.Errno) { return 0, noSys }

// ReadsNoWait returns ENOSYS.
func ReadsNoWait(int) (bool, syscall.Errno) { return false, noSys }

// FileSystem returns 0.
func FileSystem(int) int64 { return 0 }

// Types of file systems, which no descriptor has here.
const (
	FSExt4 = iota + 1
	FSXFS
	FSBtrfs
	FSF2FS
	FSFuse
)

// OpenFlags returns ENOSYS.
func OpenFlags(int) (int, error) { return 0, Error("fcntl", noSys) }

// Flags of open(2) that no descriptor has here.
const (
	ODirect   = 0
	OAppend   = 0
	ONonblock = 0
)

// PollFD stands for struct pollfd.
type PollFD struct {
	Fd              int32
	Events, Revents int16
}

// PollNow returns ENOSYS.
func PollNow([]PollFD) (int, syscall.Errno) { return 0, noSys }

// KernelRelease returns "": there is no Linux kernel.
func KernelRelease() string { return "" }

// Tickless reports false.
func Tickless() bool { return false }

// faulty is not called: no build of another system is [Faulty].
func faulty(_ string, n int) (int, syscall.Errno) { return n, 0 }

// closing is not called either.
func closing(int) {}

// Resident returns ENOSYS.
func Resident(m, pages []byte) error { return noSys }

// WillNeed returns ENOSYS.
func WillNeed(int, int64, int64) error { return noSys }
