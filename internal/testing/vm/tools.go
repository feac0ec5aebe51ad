// SPDX-License-Identifier: MIT

package vm

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// arch holds the options of qemu and of the kernel for an architecture.
type arch struct {
	qemu, pkg string   // the emulator, and the Debian package that has it
	machine   []string // qemu's options for the processor and the board
	append    string   // the kernel's options
	port      string   // the guest's device for the programs' output
	portArgs  []string // qemu's options for that device; it writes to qemu's standard output
}

// The names are those of Go and of Debian, which agree.
var archs = map[string]arch{
	"amd64": {
		qemu: "qemu-system-x86_64", pkg: "qemu-system-x86",
		// If the processor reports that "rep movsb" is fast, the kernel and Go
		// copy by it, which the emulator executes byte by byte.
		machine: []string{"-cpu", "max,-erms"},
		// On a busy host ticks are late. The kernel then assumes that the timer does
		// not work, and panics.
		append: "console=ttyS0 no_timer_check",
		port:   "/dev/ttyS1", portArgs: []string{"-serial", "stdio"},
	},
	"arm64": {
		qemu: "qemu-system-aarch64", pkg: "qemu-system-arm",
		// The processor of many cloud machines. It has LSE atomics, and no
		// pointer authentication, which is slow to emulate.
		machine: []string{"-machine", "virt,gic-version=3", "-cpu", "neoverse-n1"},
		append:  "console=ttyAMA0",
		// The board has one serial port. The device accepts no output where
		// qemu's stdio reaches the end of its input.
		port: "/dev/vport0p1", portArgs: []string{"-chardev", "file,id=port,path=/dev/stdout",
			"-device", "virtio-serial-pci", "-device", "virtserialport,chardev=port"},
	},
}

// Archs lists the architectures that machines can have.
func Archs() []string { return slices.Sorted(maps.Keys(archs)) }

func archOf(name string) (arch, error) {
	a, ok := archs[name]
	if !ok {
		return a, fmt.Errorf("vmtest: no machine of architecture %q, only %s", name, strings.Join(Archs(), ", "))
	}
	return a, nil
}

// Tools are the host's programs that a lane runs.
type Tools struct {
	// QEMU is the emulator's path.
	QEMU string
	// Mkfs is mkfs.ext4's path, or empty: then there is no scratch disk.
	Mkfs string
}

// FindTools looks up the programs for machines of an architecture. With install, as root,
// it installs missing ones by apt-get. A missing qemu is an UnavailableError.
func FindTools(ctx context.Context, arch string, install bool) (Tools, error) {
	a, err := archOf(arch)
	if err != nil {
		return Tools{}, err
	}
	qemu, err := findTool(ctx, a.qemu, a.pkg, install)
	if err != nil {
		return Tools{}, err
	}
	// Only the tests that need O_DIRECT need mkfs.
	mkfs, _ := findTool(ctx, "mkfs.ext4", "e2fsprogs", install)
	return Tools{QEMU: qemu, Mkfs: mkfs}, nil
}

func findTool(ctx context.Context, name, pkg string, install bool) (string, error) {
	path, err := lookPath(name)
	if err == nil {
		return path, nil
	}
	missing := &UnavailableError{
		Reason: "no " + name,
		Remedy: "apt-get install --no-install-recommends " + pkg,
	}
	if !install || os.Geteuid() != 0 {
		return "", missing
	}
	if err := aptInstall(ctx, pkg); err != nil {
		missing.Cause = err
		return "", missing
	}
	if path, err = lookPath(name); err != nil {
		missing.Cause = err
		return "", missing
	}
	return path, nil
}

// aptInstall tries with the package lists as they are and, if that fails, once
// more with fresh ones.
func aptInstall(ctx context.Context, pkg string) error {
	args := []string{"install", "-y", "--no-install-recommends", pkg}
	if _, err := aptGet(ctx, "", args...); err == nil {
		return nil
	}
	if _, err := aptGet(ctx, "", "update"); err != nil {
		return err
	}
	_, err := aptGet(ctx, "", args...)
	return err
}

// aptGet runs apt-get in dir. It waits up to five minutes for a lock that another
// apt-get holds: lanes start concurrently, and apt-get has a limit for only one of its
// locks.
func aptGet(ctx context.Context, dir string, args ...string) ([]byte, error) {
	for deadline := time.Now().Add(5 * time.Minute); ; {
		out, err := output(ctx, dir, "apt-get", args...)
		if err == nil || !strings.Contains(err.Error(), "Unable to acquire the dpkg frontend lock") &&
			!strings.Contains(err.Error(), "Unable to lock directory") || time.Now().After(deadline) {
			return out, err
		}
		select {
		case <-ctx.Done():
			return out, err
		case <-time.After(time.Second):
		}
	}
}
