// SPDX-License-Identifier: MIT

package vm

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/ringside-io/ringside/internal/testing/vm/wire"
)

// Config configures a machine and its jobs.
type Config struct {
	// Arch is the machine's architecture, one of Archs; empty means "amd64".
	Arch string
	// Kernel is the path of the kernel image.
	Kernel string
	// Init is the path of the guest's first process, internal/testing/vm/init
	// built for linux and Arch without cgo.
	Init string
	// Tools are the host's programs. Without Mkfs the temporary directory
	// of the guest is a tmpfs.
	Tools Tools
	// Accel is qemu's accelerator; empty means "tcg", which works everywhere.
	// "kvm" is faster where it works; there is no fallback from it, because a
	// broken KVM hangs instead of failing.
	Accel string
	// MemoryMiB is the guest's memory; zero means 2048.
	MemoryMiB int
	// CPUs is the number of virtual processors; zero means 2.
	CPUs int
	// BootTimeout bounds the time until the guest reports; zero means five
	// minutes.
	BootTimeout time.Duration
	// Sysctls are set before the first job, such as
	// "kernel.io_uring_disabled": "2".
	Sysctls map[string]string
	// Modules are the paths of kernel modules to load, in this order, before the first job.
	// One that the guest's processor cannot use is left out.
	Modules []string
	// Files are copied into the guest.
	Files []File
	// Jobs run one after the other. Each needs a Timeout.
	Jobs []wire.Job
	// Booted, Output and Ended, if not nil, follow the run: for each boot
	// with the machine's description, for each piece of output, and for each
	// job that came to its end. No two calls overlap.
	Booted func(*Report)
	Output func(job int, p []byte)
	Ended  func(job int, r Result)
}

func (c Config) withDefaults() (Config, error) {
	if c.Arch == "" {
		c.Arch = "amd64"
	}
	if _, err := archOf(c.Arch); err != nil {
		return c, err
	}
	if c.Accel == "" {
		c.Accel = "tcg"
	}
	if c.MemoryMiB == 0 {
		c.MemoryMiB = 2048
	}
	if c.CPUs == 0 {
		c.CPUs = 2
	}
	if c.BootTimeout == 0 {
		c.BootTimeout = 5 * time.Minute
	}
	if c.Booted == nil {
		c.Booted = func(*Report) {}
	}
	if c.Output == nil {
		c.Output = func(int, []byte) {}
	}
	if c.Ended == nil {
		c.Ended = func(int, Result) {}
	}
	if len(c.Jobs) == 0 {
		return c, errors.New("vmtest: nothing to run")
	}
	for _, j := range c.Jobs {
		if j.Timeout <= 0 {
			return c, fmt.Errorf("vmtest: %s has no timeout", j.Path)
		}
	}
	var err error
	c.Kernel, err = filepath.Abs(c.Kernel) // qemu runs in another directory
	return c, err
}

// deadline is when a machine that works must be finished: the guest ends jobs
// by itself, so passing it means that the guest hangs.
func (c Config) deadline() time.Duration {
	total := c.BootTimeout
	for _, j := range c.Jobs {
		total += j.Timeout + jobGrace
	}
	return total
}

// jobGrace is what a job may take beyond its timeout to be killed and reaped.
const jobGrace = 30 * time.Second
