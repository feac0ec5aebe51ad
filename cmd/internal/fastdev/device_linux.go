// SPDX-License-Identifier: MIT

package fastdev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
)

// Device is a mounted file system in memory. Its methods may be called concurrently.
type Device struct {
	root       int
	filesystem string
	note       string
}

// Make creates a device of at least size bytes. It uses memory as files are written. It needs root,
// Linux 5.8 and mkfs.xfs or mkfs.ext4.
func Make(ctx context.Context, size int64) (*Device, error) {
	fs, err := chooseFilesystem(exec.LookPath)
	if err != nil {
		return nil, err
	}
	loop, err := attach(max(size, minSize))
	if err != nil {
		return nil, unavailable("make a loop device", err)
	}
	defer loop.Close() // The mount keeps the device open.
	if err := fs.format(ctx, loop.Name()); err != nil {
		return nil, err
	}
	root, err := mountDetached(fs.name, loop.Name())
	if err != nil {
		return nil, unavailable("mount "+fs.name, err)
	}
	return &Device{root: root, filesystem: fs.name, note: fs.note}, nil
}

// Dir returns the root directory. The name is valid in this process and its children until
// [Device.Close].
func (d *Device) Dir() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), d.root) }

// Filesystem returns "xfs" or "ext4".
func (d *Device) Filesystem() string { return d.filesystem }

// Note returns the reason why the file system is not XFS, or "".
func (d *Device) Note() string { return d.note }

// Close unmounts the file system. Its memory is freed once no file on it is open.
func (d *Device) Close() error { return unix.Close(d.root) }

// unavailable explains an error of the kernel.
func unavailable(what string, err error) error {
	hint := ""
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		hint = " (run as root, outside a container or with CAP_SYS_ADMIN and /dev/loop-control)"
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		hint = " (modprobe loop; modprobe xfs)"
	}
	return fmt.Errorf("%w: %s: %w%s", ErrUnavailable, what, err, hint)
}

// filesystem is a file system that can be created here.
type filesystem struct {
	name, note string
	mkfs       []string
}

// chooseFilesystem returns XFS if it is available, or else ext4.
func chooseFilesystem(lookPath func(string) (string, error)) (filesystem, error) {
	if path, err := lookPath("mkfs.xfs"); err == nil {
		return filesystem{name: "xfs", mkfs: []string{path, "-q", "-f", "-K"}}, nil
	}
	const missing = "mkfs.xfs is not installed (Debian: apt-get install xfsprogs)"
	if path, err := lookPath("mkfs.ext4"); err == nil {
		return filesystem{
			name: "ext4", note: "the fast device has ext4 instead of XFS: " + missing,
			mkfs: []string{path, "-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"},
		}, nil
	}
	return filesystem{}, fmt.Errorf("%w: %s", ErrUnavailable, missing)
}

func (fs filesystem) format(ctx context.Context, device string) error {
	cmd := exec.CommandContext(ctx, fs.mkfs[0], append(fs.mkfs[1:], device)...)
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("%w: %s: %w: %s", ErrUnavailable, fs.mkfs[0], err, strings.TrimSpace(string(out)))
	}
	return nil
}
