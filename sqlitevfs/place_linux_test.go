// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// ownMounts gives a process its own mounts, and a user namespace where that needs privileges.
func ownMounts() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return attr
}

// memoryDisk mounts a tmpfs, in a process with its own mounts.
func memoryDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil && err != syscall.EINVAL {
		t.Skipf("needs a mount namespace: %v", err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64m"); err != nil {
		t.Skipf("needs to mount a tmpfs: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

// TestFilesOfTwoFileSystems mounts a database as a single file into a directory of another file
// system, which has its journal and its WAL then. A syncfs that other databases share says nothing
// about these, and theirs says nothing about the others.
// Promise: sqlitevfs/databases-share-syncfs
func TestFilesOfTwoFileSystems(t *testing.T) {
	if !ringtest.InChild(t, ownMounts()) {
		return
	}
	path := dbFile(t)
	c := connect(t, path, NameGroup)
	if s := statsOf(path); s.GroupSync != "on" {
		t.Skip("needs a file system on which databases share syncs:", s.GroupSync)
	}
	execSQL(t, c, "CREATE TABLE t(v)")
	c.Close()
	apart := filepath.Join(memoryDisk(t), "test.db")
	if err := os.WriteFile(apart, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount(path, apart, "", syscall.MS_BIND, ""); err != nil {
		t.Skipf("needs to mount a file: %v", err)
	}
	defer syscall.Unmount(apart, syscall.MNT_DETACH)
	for _, mode := range []string{"WAL", "PERSIST"} {
		for _, at := range []string{apart, path} {
			c := connect(t, at, NameGroup)
			execSQL(t, c, "PRAGMA wal_autocheckpoint=0; PRAGMA synchronous=FULL; PRAGMA journal_mode="+mode)
			var synced []string // the files that the group synced
			g := newSyncGroup()
			g.forced = true
			g.syncFile = func(fd int) error {
				name, err := os.Readlink(fmt.Sprint("/proc/self/fd/", fd))
				synced = append(synced, filepath.Base(name))
				return errors.Join(err, sys.Fdatasync(fd))
			}
			known.each(func(v *ringVFS) {
				if db := v.dbs.open[at]; db != nil {
					db.group = g
				}
			})
			execSQL(t, c, "INSERT INTO t VALUES(1)")
			c.Close()
			beside := slices.ContainsFunc(synced, func(name string) bool { return name != "test.db" })
			if beside != (at == path) || !slices.Contains(synced, "test.db") {
				t.Errorf("%s of %s: the group synced %q", mode, at, synced)
			}
		}
	}
}

// TestSyncFSOfReadOnlyFileSystem: syncfs(2) does nothing on a file system that is read-only, and
// returns no error. File systems become read-only when they cannot write their metadata.
// Promise: sqlitevfs/databases-share-syncfs
func TestSyncFSOfReadOnlyFileSystem(t *testing.T) {
	if !ringtest.InChild(t, ownMounts()) {
		return
	}
	dir := memoryDisk(t)
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := syncfs(int(f.Fd())); err != nil {
		t.Error(err)
	}
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if err := syncfs(int(f.Fd())); err != unix.EROFS {
		t.Errorf("a read-only file system: %v, want EROFS", err)
	}
}
