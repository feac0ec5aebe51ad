// SPDX-License-Identifier: MIT

package ufile_test

import (
	"os"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// ownMounts gives a process its own mounts, and a user namespace where that needs
// privileges.
func ownMounts() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return attr
}

// smallDisk mounts a file system of the given size, in a process with its own mounts.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil && err != syscall.EINVAL {
		t.Skipf("needs a mount namespace: %v", err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("needs to mount a tmpfs: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

// owner is the user to whom the process may give its own files: itself. Where its user
// namespace has no number for that user it is -1, which changes nothing.
var owner = sync.OnceValues(func() (uid, gid int) {
	f, err := os.CreateTemp("", "owner")
	if err != nil {
		return -1, -1
	}
	defer os.Remove(f.Name())
	defer f.Close()
	uid, gid = os.Getuid(), os.Getgid()
	if err := syscall.Fchown(int(f.Fd()), uid, gid); err == syscall.EINVAL {
		return -1, -1
	}
	return uid, gid
})

// forgetCached drops a file from the page cache, where the file system permits that.
func forgetCached(t testing.TB, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
}
