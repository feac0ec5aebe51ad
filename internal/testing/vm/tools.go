// SPDX-License-Identifier: MIT

package vm

import (
	"context"
	"os"
	"strings"
	"time"
)

// Tools are the programs of the host a lane runs.
type Tools struct {
	// QEMU is the emulator's path.
	QEMU string
	// Mkfs is mkfs.ext4's path, or empty: then there is no scratch disk.
	Mkfs string
}

// FindTools looks the programs up. With install, as root, it has apt-get
// install what is missing. A missing qemu is an UnavailableError.
func FindTools(ctx context.Context, install bool) (Tools, error) {
	qemu, err := findTool(ctx, "qemu-system-x86_64", "qemu-system-x86", install)
	if err != nil {
		return Tools{}, err
	}
	// Without mkfs only the tests that need O_DIRECT lose something.
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
// apt-get holds: lanes start side by side, and apt-get has a limit for one of its
// locks only.
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
