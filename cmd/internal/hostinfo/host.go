// SPDX-License-Identifier: MIT

// Package hostinfo describes machine, storage and build for result files. Unknown fields are empty.
// No function fails.
package hostinfo

import (
	"context"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/report"
)

// Collect describes this machine and build, and the storage of target, which is a file or a
// directory. With an empty target it leaves out the storage.
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

// BuildInfo identifies the source of this program.
type BuildInfo struct {
	// Version is the module's version, "(devel)" for a build from a work tree.
	Version string
	// Commit is the revision, with "-dirty" if the tree had changes; empty if unknown.
	Commit string
}

// Build identifies the source of this program. "go run" records no revision. In that case Build
// asks the repository of the source, if it is there.
func Build() BuildInfo {
	b := BuildInfo{Version: "(devel)"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if info.Main.Version != "" {
		b.Version = info.Main.Version
	}
	if b.Commit = recordedCommit(info); b.Commit == "" && b.Version == "(devel)" {
		b.Commit = sourceCommit()
	}
	return b
}

func recordedCommit(info *debug.BuildInfo) string {
	commit, dirty := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if commit == "" {
		return ""
	}
	return commit + dirty
}

// sourceCommit asks git for the revision of the tree from which this file was compiled.
func sourceCommit() string {
	_, file, _, ok := runtime.Caller(0)
	if !ok || !filepath.IsAbs(file) {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "git", "-C", filepath.Dir(file),
		"describe", "--always", "--dirty", "--abbrev=12", "--exclude=*").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
