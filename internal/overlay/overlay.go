// SPDX-License-Identifier: MIT

// Package overlay makes Go programs use ufile and unet without a change of their source: it
// writes an overlay for the go command (go build -overlay) that patches packages of the standard
// library, and adds ufile and unet to it as packages ringside/ufile and ringside/unet.
//
// With Files, internal/poll.FD.Pread asks ufile first, so each os.File gains whose ReadAt waits
// for a disk, and nothing else of package os changes. With Sockets, *net.TCPConn, *net.UnixConn
// and their listeners forward each call to a socket of unet. Fronts does the same for *os.File and
// *os.Root; it is for tests of ufile's own methods.
//
// The patches are made from the source of the toolchain that builds. No code of GOROOT gets into
// this repository. A rule without a match is an error: Go's source has changed too much.
package overlay

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ringside-io/ringside"
)

//go:embed *.go hooks/*.go.txt
var own embed.FS

// Options select what the overlay changes.
type Options struct {
	Files   bool // positional reads of os.File
	Sockets bool // TCP and Unix stream sockets of package net
	Fronts  bool // all methods of os.File and os.Root, instead of Files

	tests bool // for go test
	mains bool // the main packages import the library
}

// Toolchain is the go command that builds, as it describes itself in a directory.
type Toolchain struct {
	GOROOT, GOVERSION, GOMODCACHE, GOOS, GOARCH, GOFLAGS string

	goCommand string
	env       []string // of that command
}

// Versions are the releases of Go whose source the rules fit.
var Versions = []string{"go1.26", "go1.27"}

// processors are those whose system calls hooks/unix.go.txt has without assembly.
var processors = []string{"amd64", "arm64"}

// Select returns the toolchain that the go command chooses in a directory, "" for the current one.
// The go command refuses an overlay of files below GOMODCACHE, where it keeps toolchains that it has
// downloaded. Such a toolchain is reached through a symbolic link in the cache directory.
func Select(dir, cache string) (*Toolchain, error) {
	cmd := exec.Command("go", "env", "-json", "GOROOT", "GOVERSION", "GOMODCACHE", "GOOS", "GOARCH", "GOFLAGS")
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w: %s", err, cmp.Or(strings.TrimSpace(stderr.String()), "the go command must be in PATH"))
	}
	t := &Toolchain{goCommand: "go", env: os.Environ()}
	if err := json.Unmarshal(out, t); err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	known := func(v string) bool {
		return t.GOVERSION == v || strings.HasPrefix(t.GOVERSION, v+".") || strings.HasPrefix(t.GOVERSION, v+"rc")
	}
	if !slices.ContainsFunc(Versions, known) {
		return nil, fmt.Errorf("the go command here is %s, and this ringside knows %s: set GOTOOLCHAIN to one of these, or install a newer ringside",
			t.GOVERSION, strings.Join(Versions, " and "))
	}
	if !below(t.GOROOT, t.GOMODCACHE) {
		return t, nil
	}
	sum := sha256.Sum256([]byte(t.GOROOT)) // other module caches have the same toolchain
	link := filepath.Join(cache, filepath.Base(t.GOROOT)+"-"+hex.EncodeToString(sum[:4]))
	if err := os.MkdirAll(cache, 0o777); err != nil {
		return nil, err
	}
	if err := os.Symlink(t.GOROOT, link); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	t.GOROOT, t.goCommand = link, filepath.Join(link, "bin", "go")
	t.env = append(t.env, "GOROOT="+link, "GOTOOLCHAIN=local")
	return t, nil
}

// CacheDir is the directory of the overlays, below that of the user.
func CacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no directory for the overlay: %w; set XDG_CACHE_HOME or HOME", err)
	}
	return filepath.Join(dir, "ringside"), nil
}

// Make returns the path of the overlay's JSON file. It is made once for each toolchain, target,
// source of ringside and options, below the cache directory. Builds at the same time may make it
// twice; the first one stays. On systems other than Linux the overlay is empty.
func Make(t *Toolchain, cache string, o Options) (string, error) {
	if t.GOOS == "linux" && !slices.Contains(processors, t.GOARCH) {
		return "", fmt.Errorf("ringside builds unchanged programs for %s, not for %s: use go build",
			strings.Join(processors, " and "), t.GOARCH)
	}
	key, err := t.key(o)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, key)
	path := filepath.Join(dir, "overlay.json")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(cache, 0o777); err != nil {
		return "", needsDir(err)
	}
	removeOld(cache)
	temp, err := os.MkdirTemp(cache, unfinished)
	if err != nil {
		return "", needsDir(err)
	}
	defer os.RemoveAll(temp)
	b := &builder{tools: t, options: o, temp: temp, dir: dir, replace: map[string]string{}}
	if t.GOOS == "linux" {
		if err := b.build(); err != nil {
			return "", fmt.Errorf("the source of %s in %s: %w", t.GOVERSION, t.GOROOT, err)
		}
	}
	if err := b.writeJSON(filepath.Join(temp, "overlay.json"), dir); err != nil {
		return "", err
	}
	if err := os.Rename(temp, dir); err != nil {
		if _, statErr := os.Stat(path); statErr != nil {
			return "", err
		}
	}
	return path, nil
}

func needsDir(err error) error {
	return fmt.Errorf("the overlay needs a directory: %w; set XDG_CACHE_HOME to a writable one", err)
}

// unfinished begins the names of directories in the making.
const unfinished = "new"

// removeOld removes what builds left that were killed more than a day ago.
func removeOld(cache string) {
	entries, _ := os.ReadDir(cache)
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && strings.HasPrefix(e.Name(), unfinished) && time.Since(info.ModTime()) > 24*time.Hour {
			_ = os.RemoveAll(filepath.Join(cache, e.Name()))
		}
	}
}

// key names the overlay. Its source is part of the name, so that an overlay never outlives a change.
func (t *Toolchain) key(o Options) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, t.GOVERSION, t.GOROOT, t.GOOS, t.GOARCH, o)
	for _, files := range []fs.FS{ringside.Source, own} {
		err := fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := fs.ReadFile(files, path)
			fmt.Fprintf(h, "%s %d\n%s", path, len(data), data)
			return err
		})
		if err != nil {
			return "", err
		}
	}
	return t.GOVERSION + "-" + t.GOOS + "-" + t.GOARCH + "-" + hex.EncodeToString(h.Sum(nil)[:8]), nil
}

// builder writes the files of an overlay.
type builder struct {
	tools     *Toolchain
	options   Options
	temp, dir string            // where the files are written, and where they will be
	replace   map[string]string // by path below GOROOT/src: path below dir
}

// build writes the library and the patched files that the options ask for, then the overlay.
func (b *builder) build() error {
	if err := b.addLibrary(); err != nil {
		return err
	}
	var errs []error
	if b.options.Files || b.options.Sockets {
		errs = append(errs, b.patchPoll())
	}
	if b.options.Fronts {
		errs = append(errs, b.patchOS())
	}
	if b.options.Sockets {
		errs = append(errs, b.patchNet())
	}
	return errors.Join(append(errs, b.link())...)
}

// source reads a file below GOROOT/src, as far as it is patched already.
func (b *builder) source(path string) ([]byte, error) {
	if to, ok := b.replace[path]; ok {
		return os.ReadFile(filepath.Join(b.temp, to))
	}
	return os.ReadFile(filepath.Join(b.tools.GOROOT, "src", path))
}

// add puts a file at a path below GOROOT/src.
func (b *builder) add(path string, text []byte) error {
	to := filepath.Join(b.temp, path)
	if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
		return err
	}
	b.replace[path] = path
	return os.WriteFile(to, text, 0o666)
}

// addHook adds a file of hooks.
func (b *builder) addHook(name, path string) error {
	text, err := own.ReadFile("hooks/" + name + ".go.txt")
	if err != nil {
		return err
	}
	return b.add(path, text)
}

func (b *builder) writeJSON(path, dir string) error {
	replace := map[string]string{}
	for to, from := range b.replace {
		replace[filepath.Join(b.tools.GOROOT, "src", to)] = filepath.Join(dir, from)
	}
	text, err := overlayText(replace)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o666)
}

// overlayText is the overlay as the go command reads it.
func overlayText(replace map[string]string) ([]byte, error) {
	return json.MarshalIndent(map[string]any{"Replace": replace}, "", "\t")
}

// readOverlay returns the files of an overlay.
func readOverlay(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all struct{ Replace map[string]string }
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("%s: %w: remove it", path, err)
	}
	return all.Replace, nil
}
