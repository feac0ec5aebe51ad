// SPDX-License-Identifier: MIT

// Package cli has what the commands of this repository share: the version that they print and
// record, and a standard output whose errors are not lost.
package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

// Source identifies the source of a program.
type Source struct {
	// Version is the version of the module with the program, "(devel)" for a build in a work tree.
	Version string
	// Commit is the revision, with "-dirty" if the tree had changes. It is empty if unknown.
	Commit string
}

// Own returns the source of this program. The commit is the one that the go command recorded in the
// program. "go run" records none: then Own asks the repository of the source, once. A program of "go
// build" without a record may be older than what its repository has now, so its commit is unknown.
var Own = sync.OnceValue(func() Source {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Source{Version: "(devel)"}
	}
	path, _ := os.Executable() // without a path the commit stays unknown
	return source(info, path, checkout)
})

// Line returns a line that identifies a program by its name and its source.
func (s Source) Line(name string) string {
	commit := ""
	if s.Commit != "" {
		commit = " commit " + s.Commit
	}
	return fmt.Sprintf("%s %s%s %s %s/%s\n", name, s.Version, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// source returns the source of a program that has this record at this path. checkout returns the commit
// that the repository of the source has now.
func source(info *debug.BuildInfo, path string, checkout func() string) Source {
	s := Source{Version: info.Main.Version}
	if s.Version == "" {
		s.Version = "(devel)"
	}
	dirty := ""
	for _, set := range info.Settings {
		switch {
		case set.Key == "vcs.revision":
			s.Commit = set.Value[:min(len(set.Value), 12)]
		case set.Key == "vcs.modified" && set.Value == "true":
			dirty = "-dirty"
		}
	}
	switch {
	case s.Commit != "":
		s.Commit += dirty
	case s.Version == "(devel)" && ofGoRun.MatchString(filepath.ToSlash(path)):
		s.Commit = checkout()
	}
	return s
}

// ofGoRun matches the paths of programs that "go run" has built, in its cache or in a temporary
// directory.
var ofGoRun = regexp.MustCompile(`/([0-9a-f]{64}-d|go-build[0-9]+/b[0-9]+/exe)/[^/]+$`)

// checkout asks git for the revision of the tree from which this file was compiled.
func checkout() string {
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

// Output is a standard output that keeps the first error. What prints help, tables or lines may ignore
// the errors of its writes: the command ends with [Output.Err]. Write and Err may be called concurrently.
type Output struct {
	w   io.Writer
	mu  sync.Mutex
	err error
}

// NewOutput returns an Output that writes to w.
func NewOutput(w io.Writer) *Output { return &Output{w: w} }

// Unwrap returns the writer below, such as the file that may be a terminal.
func (o *Output) Unwrap() io.Writer { return o.w }

// Write writes to the writer below, also after an error.
func (o *Output) Write(p []byte) (int, error) {
	n, err := o.w.Write(p)
	if err != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.err == nil {
			o.err = err
		}
	}
	return n, err
}

// Err returns the first error of a write, nil if there was none.
func (o *Output) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}
