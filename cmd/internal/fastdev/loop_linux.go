// SPDX-License-Identifier: MIT

package fastdev

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// attach returns a loop device over a new file in memory. The kernel detaches it once it is closed
// and not mounted.
func attach(size int64) (*os.File, error) {
	mem, err := unix.MemfdCreate(backingName(os.Getpid()), unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	defer unix.Close(mem) // The loop device has its own reference.
	if err := unix.Ftruncate(mem, size); err != nil {
		return nil, os.NewSyscallError("ftruncate", err)
	}
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	for range 64 {
		loop, err := attachFree(control, mem)
		if !errors.Is(err, unix.EBUSY) { // EBUSY: another process took the device between the two steps.
			return loop, err
		}
	}
	return nil, fmt.Errorf("find a free loop device: %w", unix.EBUSY)
}

// backingName is the name of the file of process pid in the output of losetup.
func backingName(pid int) string { return fmt.Sprintf("ringside-fast-%d", pid) }

func attachFree(control *os.File, mem int) (*os.File, error) {
	n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
	if err != nil {
		return nil, os.NewSyscallError("ioctl LOOP_CTL_GET_FREE", err)
	}
	loop, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	config := unix.LoopConfig{Fd: uint32(mem)}
	config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR
	if err := unix.IoctlLoopConfigure(int(loop.Fd()), &config); err != nil {
		return nil, errors.Join(os.NewSyscallError("ioctl LOOP_CONFIGURE", err), loop.Close())
	}
	return loop, nil
}

// mountDetached mounts the device without a place in the directory tree and returns a descriptor
// of its root directory.
func mountDetached(filesystem, device string) (int, error) {
	fs, err := unix.Fsopen(filesystem, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, os.NewSyscallError("fsopen", err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigSetString(fs, "source", device); err != nil {
		return -1, os.NewSyscallError("fsconfig", err)
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, os.NewSyscallError("fsconfig", err)
	}
	root, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOATIME|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOSUID)
	if err != nil {
		return -1, os.NewSyscallError("fsmount", err)
	}
	return root, nil
}
