// SPDX-License-Identifier: MIT

// Package hostinfo describes machine, storage and build for result files. Unknown fields are empty.
// No function fails.
package hostinfo

import (
	"runtime"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/internal/cli"
)

// Collect describes this machine and build, and the storage of target, which is a file or a
// directory. With an empty target it leaves out the storage.
func Collect(target string) report.Host {
	source := cli.Own()
	h := report.Host{
		Time:       time.Now().UTC().Format(time.RFC3339),
		OS:         runtime.GOOS,
		Arch:       runtime.GOARCH,
		Kernel:     kernelRelease(),
		CPU:        cpuModel(),
		Cores:      runtime.NumCPU(),
		GOMAXPROCS: runtime.GOMAXPROCS(0),
		Memory:     memory().total,
		Go:         runtime.Version(),
		Ringside:   source.Version,
		Commit:     source.Commit,
	}
	if target != "" {
		s := storage(target)
		h.Device, h.Filesystem, h.Mount = s.device, s.filesystem, s.options
	}
	return h
}

// AvailableMemory returns the number of bytes that can be used without swapping, or 0 if unknown.
func AvailableMemory() int64 { return memory().available }

// memoryInfo is in bytes; 0 means unknown.
type memoryInfo struct{ total, available int64 }

// storageInfo describes the storage of a path.
type storageInfo struct{ device, filesystem, options string }

// busyWindow is how long the processors are observed for other users.
const busyWindow = 300 * time.Millisecond

// maxBusy is the share of all processors that others may use before results are affected.
const maxBusy = 0.05

// tooBusy is the share from which other programs affect every number.
const tooBusy = 0.25

// Spoilers returns conditions of this machine that disturb results, in sentences for the user:
// other running programs, the processor's governor, limits of a container. It observes the machine
// for 0.3 seconds. The caller should do nothing during that time.
func Spoilers() []string { return spoilers() }

// Stolen begins to observe the processors of a virtual machine. The function that it returns returns
// the share of their time since then in which they had work and the host ran something else: the
// field "steal" of proc_stat(5). It is 0 where unknown. Spoilers cannot see it: an idle machine has
// none.
func Stolen() func() float64 { return stolen() }
