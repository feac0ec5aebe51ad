// SPDX-License-Identifier: MIT

package fastdev

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// makerEnv turns the test binary into a process that makes a device and waits to be killed.
const makerEnv = "RINGSIDE_TEST_FASTDEV"

func TestMain(m *testing.M) {
	if os.Getenv(makerEnv) != "" {
		makeAndWait()
	}
	os.Exit(m.Run())
}

func makeAndWait() {
	d, err := Make(context.Background(), 1)
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	fmt.Println(d.Dir())
	_, _ = io.Copy(io.Discard, os.Stdin) // Until the parent ends, in case it fails to kill this process.
	os.Exit(0)
}

// needDevice skips the test where a fast device cannot be made.
func needDevice(t *testing.T) *Device {
	t.Helper()
	d, err := Make(t.Context(), 1)
	if errors.Is(err, ErrUnavailable) {
		t.Skipf("fast device: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// backed reports whether a loop device still has the file of that process.
func backed(t *testing.T, pid int) bool {
	t.Helper()
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(b), "memfd:"+backingName(pid)+" ") {
			return true
		}
	}
	return false
}

func eventuallyGone(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); backed(t, pid); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the loop device still exists")
		}
	}
}

func TestDevice(t *testing.T) {
	d := needDevice(t)
	if !backed(t, os.Getpid()) {
		t.Error("no loop device has the file: this test would not find one left behind")
	}
	if fs := d.Filesystem(); fs != "xfs" && (fs != "ext4" || !strings.Contains(d.Note(), "xfsprogs")) {
		t.Errorf("file system %q, note %q", fs, d.Note())
	}
	path := filepath.Join(d.Dir(), "data")
	if err := os.WriteFile(path, []byte("in memory"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "cat", path).CombinedOutput(); err != nil || string(out) != "in memory" {
		t.Errorf("a child read %q, %v", out, err)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECT, 0)
	if err != nil {
		t.Errorf("O_DIRECT: %v", err)
	} else if err := f.Close(); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile("/proc/self/mounts"); err != nil || strings.Contains(string(b), "/dev/loop") && strings.Contains(string(b), d.Dir()) {
		t.Errorf("mounted in the directory tree: %s, %v", b, err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	eventuallyGone(t, os.Getpid())
}

// TestKilled checks that a process that is killed, and cannot clean up, leaves nothing
// behind.
func TestKilled(t *testing.T) {
	if err := needDevice(t).Close(); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), makerEnv+"=1")
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	pid := cmd.Process.Pid
	if err != nil || !strings.HasPrefix(line, fmt.Sprintf("/proc/%d/", pid)) || !backed(t, pid) {
		t.Errorf("the process printed %q, %v; device made: %v", line, err, backed(t, pid))
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // It was killed.
	eventuallyGone(t, pid)
}

func TestInterruptedWhileFormatting(t *testing.T) {
	if err := needDevice(t).Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Make(ctx, 1); !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	eventuallyGone(t, os.Getpid())
}

func TestChooseFilesystem(t *testing.T) {
	installed := func(names ...string) func(string) (string, error) {
		return func(name string) (string, error) {
			if strings.Contains(" "+strings.Join(names, " ")+" ", " "+name+" ") {
				return "/sbin/" + name, nil
			}
			return "", exec.ErrNotFound
		}
	}
	if fs, err := chooseFilesystem(installed("mkfs.ext4", "mkfs.xfs")); err != nil || fs.name != "xfs" || fs.note != "" {
		t.Errorf("%+v, %v", fs, err)
	}
	if fs, err := chooseFilesystem(installed("mkfs.ext4")); err != nil || fs.name != "ext4" || !strings.Contains(fs.note, "apt-get install xfsprogs") {
		t.Errorf("%+v, %v", fs, err)
	}
	if _, err := chooseFilesystem(installed()); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "apt-get install xfsprogs") {
		t.Errorf("got %v", err)
	}
}

func TestUnavailableNamesTheRemedy(t *testing.T) {
	for cause, says := range map[error]string{syscall.EPERM: "root", syscall.EACCES: "root", syscall.ENODEV: "modprobe", syscall.ENOENT: "modprobe"} {
		err := unavailable("make a loop device", &os.PathError{Op: "open", Path: "/dev/loop-control", Err: cause})
		if !errors.Is(err, ErrUnavailable) || !errors.Is(err, cause) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v", cause, err)
		}
	}
}
