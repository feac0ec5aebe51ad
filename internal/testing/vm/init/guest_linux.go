// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/testing/vm/wire"
	"golang.org/x/sys/unix"
)

// maxFiles is the descriptor limit of the jobs, the same as systemd's.
const maxFiles = 524288

// guest is the machine that is being prepared.
type guest struct {
	scratch bool
	notes   []string
}

// note records a preparation that failed. The run continues: a test that needs it
// reports that more clearly.
func (g *guest) note(what string, err error) {
	if err != nil {
		g.notes = append(g.notes, what+": "+err.Error())
	}
}

func (g *guest) mountAll() {
	g.mount("proc", "/proc", "proc", "")
	g.mount("sysfs", "/sys", "sysfs", "")
	g.mount("devtmpfs", "/dev", "devtmpfs", "")
	g.mount("tmpfs", "/dev/shm", "tmpfs", "mode=1777")
	g.mount("tmpfs", "/tmp", "tmpfs", "mode=1777")
	g.note("/dev/fd", os.Symlink("/proc/self/fd", "/dev/fd"))
}

func (g *guest) mount(source, target, fstype, data string) {
	g.note("mkdir", os.MkdirAll(target, 0o755))
	g.note("mount "+target, syscall.Mount(source, target, fstype, 0, data))
}

// prepare prepares the machine. It returns an error if a request of the plan cannot be
// met.
func (g *guest) prepare(plan wire.Plan) error {
	g.note("loopback", loopbackUp())
	limit := syscall.Rlimit{Cur: maxFiles, Max: maxFiles}
	g.note("descriptor limit", syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	g.note("host name", syscall.Sethostname([]byte("ringside")))
	for key, value := range plan.Sysctls {
		path := filepath.Join("/proc/sys", strings.ReplaceAll(key, ".", "/"))
		if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
			return fmt.Errorf("sysctl: %w", err)
		}
	}
	for _, path := range plan.Modules {
		g.note("module "+path, loadModule(path))
	}
	if plan.ScratchDevice != "" {
		return g.mountScratch(plan.ScratchDevice)
	}
	return nil
}

// loadModule loads a kernel module. One whose instructions the processor lacks is left out
// without an error: the kernel then uses another implementation.
func loadModule(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	flags := 0
	if filepath.Ext(path) != ".ko" {
		flags = unix.MODULE_INIT_COMPRESSED_FILE
	}
	err = unix.FinitModule(int(f.Fd()), "", flags)
	if err == unix.ENODEV || err == unix.EEXIST {
		return nil
	}
	return err
}

// await waits for a device that the kernel finds in the background of booting.
func await(device string) error {
	deadline := time.Now().Add(20 * time.Second)
	for {
		_, err := os.Stat(device)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (g *guest) mountScratch(device string) error {
	if err := await(device); err != nil {
		return err
	}
	if err := syscall.Mount(device, "/scratch", "ext4", 0, ""); err != nil {
		return fmt.Errorf("mount %s: %w", device, err)
	}
	g.scratch = true
	return os.Chmod("/scratch", 0o1777)
}

// tempDir is the jobs' TMPDIR.
func (g *guest) tempDir() string {
	if g.scratch {
		return "/scratch"
	}
	return "/tmp"
}

func (g *guest) describe() wire.Guest {
	var name syscall.Utsname
	g.note("uname", syscall.Uname(&name))
	info := wire.Guest{
		Release: utsString(name.Release[:]),
		Machine: utsString(name.Machine[:]),
		CPUs:    runtime.NumCPU(),
		Mounts:  []wire.Mount{{Path: "/tmp", Type: "tmpfs", Direct: directWorks("/tmp")}},
	}
	if g.scratch {
		info.Mounts = append(info.Mounts, wire.Mount{Path: "/scratch", Type: "ext4", Direct: directWorks("/scratch")})
	}
	info.Notes = g.notes
	return info
}

// utsString ends at the zero; the element type differs between architectures.
func utsString[T int8 | uint8](field []T) string {
	var s strings.Builder
	for _, c := range field {
		if c == 0 {
			break
		}
		s.WriteByte(byte(c))
	}
	return s.String()
}

// directWorks tries an O_DIRECT write in dir.
func directWorks(dir string) bool {
	path := filepath.Join(dir, ".direct")
	fd, err := syscall.Open(path, syscall.O_CREAT|syscall.O_WRONLY|syscall.O_DIRECT|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return false
	}
	defer os.Remove(path)
	defer syscall.Close(fd)
	// A mapping has the alignment that O_DIRECT needs.
	page, err := syscall.Mmap(-1, 0, 4096, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return false
	}
	defer syscall.Munmap(page)
	n, err := syscall.Pwrite(fd, page, 0)
	return err == nil && n == len(page)
}
