// SPDX-License-Identifier: MIT

package blockdisk

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// FileSystem is a kind of file system, made by a mkfs program and mounted with options.
type FileSystem struct {
	Name    string   // for test names: ext4, ext4-journal, …
	Type    string   // for mount(2)
	Mkfs    []string // the program and its arguments before the device
	Options string   // for mount(2)
	Package string   // Debian package of the program
	Size    int64    // of the disk
	Sector  int      // of the disk
	// Whole are the superblocks that are larger than a sector. They are written in place, and a
	// file system with a torn superblock cannot be mounted without repair.
	Whole  [][2]int64
	Repair []string // the program to run before a mount after a power cut
}

var (
	mkfsExt4 = []string{"mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"}
	mkfsXFS  = []string{"mkfs.xfs", "-q", "-f", "-K"}

	superblockExt4   = [][2]int64{{0, 4096}}
	superblocksBtrfs = [][2]int64{{64 << 10, 68 << 10}, {64 << 20, 64<<20 + 4096}}
)

// FileSystems are the file systems on which package sqlitevfs uses group sync.
var FileSystems = []FileSystem{
	{"ext4", "ext4", mkfsExt4, "data=ordered", "e2fsprogs", 64 << 20, 512, superblockExt4, nil},
	{"ext4-journal", "ext4", mkfsExt4, "data=journal", "e2fsprogs", 64 << 20, 512, superblockExt4, nil},
	{"ext4-writeback", "ext4", mkfsExt4, "data=writeback", "e2fsprogs", 64 << 20, 512, superblockExt4, nil},
	{"ext4-nojournal", "ext4", append(mkfsExt4[:len(mkfsExt4):len(mkfsExt4)], "-O", "^has_journal"), "", "e2fsprogs", 64 << 20, 512, superblockExt4, []string{"e2fsck", "-fy"}},
	{"xfs", "xfs", mkfsXFS, "", "xfsprogs", 320 << 20, 512, nil, nil},
	{"btrfs", "btrfs", []string{"mkfs.btrfs", "-q", "-f", "-K"}, "", "btrfs-progs", 256 << 20, 512, superblocksBtrfs, nil},
}

// Find returns the file system with a name.
func Find(name string) (FileSystem, bool) {
	for _, f := range FileSystems {
		if f.Name == name {
			return f, true
		}
	}
	return FileSystem{}, false
}

// Missing returns an error that names the missing requirement for making and mounting the file
// system, or nil if none is known.
func (f FileSystem) Missing() error {
	if os.Geteuid() != 0 {
		return errors.New("needs root: mount, loop devices")
	}
	for _, device := range []string{"/dev/fuse", "/dev/loop-control"} {
		file, err := os.OpenFile(device, os.O_RDWR, 0)
		if err != nil {
			return fmt.Errorf("needs %s: %w", device, err)
		}
		file.Close()
	}
	if _, err := exec.LookPath(f.Mkfs[0]); err != nil {
		return fmt.Errorf("needs %s: apt-get install %s", f.Mkfs[0], f.Package)
	}
	types, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(types)) {
		if fields := strings.Fields(line); len(fields) > 0 && fields[len(fields)-1] == f.Type {
			return nil
		}
	}
	// The module may be installed and not loaded yet.
	if exec.Command("modprobe", f.Type).Run() != nil {
		return fmt.Errorf("needs the file system %s in the kernel", f.Type)
	}
	return nil
}

// Make makes a new file system on a disk.
func (f FileSystem) Make(d *Disk) error {
	if err := d.Wipe(); err != nil {
		return err
	}
	cmd := exec.Command(f.Mkfs[0], append(f.Mkfs[1:len(f.Mkfs):len(f.Mkfs)], d.Device())...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", f.Mkfs[0], err, bytes.TrimSpace(out))
	}
	return nil
}

// Recover runs the program that a file system needs before it is mounted after a power cut.
func (f FileSystem) Recover(d *Disk) error {
	if f.Repair == nil {
		return nil
	}
	cmd := exec.Command(f.Repair[0], append(f.Repair[1:len(f.Repair):len(f.Repair)], d.Device())...)
	out, err := cmd.CombinedOutput()
	const uncorrected = 4 // lower bits: errors were corrected
	if err != nil && (cmd.ProcessState == nil || cmd.ProcessState.ExitCode() >= uncorrected) {
		return fmt.Errorf("%s: %w: %s", f.Repair[0], err, bytes.TrimSpace(out))
	}
	return nil
}

// Mount mounts the disk. The calling process must not use files below dir.
func (f FileSystem) Mount(d *Disk, dir string) error {
	return os.NewSyscallError("mount", unix.Mount(d.Device(), dir, f.Type, unix.MS_NOATIME, f.Options))
}

// Unmount unmounts a directory. It waits up to ten seconds while files are in use: the kernel closes
// those of a process that has just ended, and drops the last reference to a file that a ring has
// used, a little later.
func Unmount(dir string) error {
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		err := unix.Unmount(dir, 0)
		if err != unix.EBUSY || time.Since(start) > 10*time.Second {
			return os.NewSyscallError("umount", err)
		}
	}
}
