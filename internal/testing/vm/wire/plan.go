// SPDX-License-Identifier: MIT

package wire

import "time"

// PlanPath is where the guest finds its plan, a Plan in JSON.
const PlanPath = "/ringside/plan.json"

// Plan lists the preparations and the jobs of the guest, in order.
type Plan struct {
	// Nonce is part of every marker, so that a program's output cannot be
	// mistaken for one.
	Nonce string
	// Port is the device that carries the markers and the programs' output.
	Port string
	// ScratchDevice is a block device with an ext4 file system to mount as
	// the temporary directory; empty leaves it on tmpfs.
	ScratchDevice string
	// Sysctls are written below /proc/sys before the first job; the keys have
	// dots, as sysctl(8) prints them.
	Sysctls map[string]string
	// Modules are the paths in the guest of kernel modules to load, in order.
	Modules []string
	// Jobs run one after the other, beginning with the one at index First.
	Jobs  []Job
	First int
}

// Job is one program to run in the guest.
type Job struct {
	// Path is the program's absolute path in the guest.
	Path string
	// Args follow the program name.
	Args []string
	// Dir is the working directory; it is created if missing.
	Dir string
	// Env holds KEY=value pairs, added to the guest's PATH, HOME, USER and
	// TMPDIR.
	Env []string
	// Timeout ends the job: first by SIGQUIT, for the goroutine dump, then by
	// SIGKILL.
	Timeout time.Duration
	// UID and GID the program runs as; 0 is root.
	UID, GID uint32
}
