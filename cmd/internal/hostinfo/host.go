// SPDX-License-Identifier: MIT

package hostinfo

import (
	"runtime"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/report"
)

// Collect describes this machine and build, and the storage beneath target, which is a file or a
// directory; with an empty target storage is left out.
func Collect(target string) report.Host {
	build := Build()
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
		Ringside:   build.Version,
		Commit:     build.Commit,
	}
	if target != "" {
		s := storage(target)
		h.Device, h.Filesystem, h.Mount = s.device, s.filesystem, s.options
	}
	return h
}

// AvailableMemory returns how many bytes can be used without swapping, 0 if unknown.
func AvailableMemory() int64 { return memory().available }

// memoryInfo is in bytes; 0 means unknown.
type memoryInfo struct{ total, available int64 }

// storageInfo is what lies beneath a path.
type storageInfo struct{ device, filesystem, options string }
