// SPDX-License-Identifier: MIT

package hostinfo

import (
	"context"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// BuildInfo tells what this program was built from.
type BuildInfo struct {
	// Version is the module's version, "(devel)" for a build from a work tree.
	Version string
	// Commit is the revision, with "-dirty" if the tree had changes; empty if unknown.
	Commit string
}

// Build returns what this program was built from. The go command records no revision when it
// runs a program directly, so then the source's own repository is asked, if it is there.
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

// sourceCommit asks git for the revision of the tree this file was compiled from.
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
