// SPDX-License-Identifier: MIT

package fusefs

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/referees/blockdisk"
)

// mountOrSkip mounts a file system until the test ends, or skips the test if the kernel does not
// have or forbids it.
func mountOrSkip(t testing.TB, kind, source, dir, options string) {
	t.Helper()
	needNamespace(t)
	if err := syscall.Mount(source, dir, kind, 0, options); err != nil {
		t.Skipf("needs the right to mount %s: %v", kind, err)
	}
	t.Cleanup(func() {
		if err := blockdisk.Unmount(dir); err != nil {
			t.Errorf("%s: %v; open: %v", kind, err, ringtest.Descriptors(t, dir))
		}
	})
}

// tmpfs returns an empty directory in memory.
func tmpfs(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	mountOrSkip(t, "tmpfs", "tmpfs", dir, "")
	return dir
}

// ramfs returns an empty directory of a ramfs.
func ramfs(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	mountOrSkip(t, "ramfs", "ramfs", dir, "")
	return dir
}

// overlay returns the empty directory of an overlay.
func overlay(t testing.TB) string {
	t.Helper()
	base := tmpfs(t)
	var dirs []string
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		dirs = append(dirs, filepath.Join(base, name))
		if err := os.Mkdir(dirs[len(dirs)-1], 0o700); err != nil {
			t.Fatal(err)
		}
	}
	mountOrSkip(t, "overlay", "overlay", dirs[3], "lowerdir="+dirs[0]+",upperdir="+dirs[1]+",workdir="+dirs[2])
	return dirs[3]
}

// loopback returns an empty directory served by go-fuse's loopback.
func loopback(t testing.TB) string {
	t.Helper()
	return mountFUSEOf(t, t.TempDir()).Dir
}

// image returns a function that makes a file system with a program, in a file of the given size,
// and mounts it. If there is a source, the program gets it as the initial content.
func image(kind string, size int64, mkfs ...string) func(testing.TB) string {
	return func(t testing.TB) string {
		t.Helper()
		img := filepath.Join(t.TempDir(), "image")
		if err := os.WriteFile(img, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(img, size); err != nil {
			t.Fatal(err)
		}
		run(t, append(mkfs, img)...)
		return loop(t, kind, img)
	}
}

// run runs a program, or skips where it is not installed.
func run(t testing.TB, args ...string) {
	t.Helper()
	if _, err := exec.LookPath(args[0]); err != nil {
		t.Skipf("needs %s: %v", args[0], err)
	}
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// loop mounts an image with mount(8), which finds a loop device.
func loop(t testing.TB, kind, img string) string {
	t.Helper()
	needNamespace(t)
	if all, err := os.ReadFile("/proc/filesystems"); err != nil || !strings.Contains(string(all), "\t"+kind+"\n") {
		t.Skipf("needs a kernel with %s", kind)
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skipf("needs loop devices: %v", err)
	}
	dir := t.TempDir()
	out, err := exec.Command("mount", "-t", kind, "-o", "loop", img, dir).CombinedOutput()
	if err != nil {
		t.Skipf("needs the right to mount loop devices: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmount %s: %v", kind, errors.Join(err))
		}
	})
	return dir
}
