// SPDX-License-Identifier: MIT

package lint

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

const module = "github.com/ringside-io/ringside/"

// layers lists which packages of this module a package may import, by path below the
// module. internal/sys is the only way to the kernel; every package above it may use it. A
// package that is not listed fails the test: decide its layer when it is new.
var layers = map[string][]string{
	"internal/abi":       {},
	"internal/sys":       {"internal/abi"},
	"internal/probe":     {"internal/sys"},
	"internal/cli":       {},
	"internal/overlay":   {}, // and the module's root, which is not below the prefix
	"internal/inflight":  {},
	"internal/fdlock":    {},
	"internal/loghook":   {},
	"internal/walformat": {},
	"uring":              {"internal/abi", "internal/sys"},
	"features":           {"internal/abi", "internal/probe", "internal/sys", "uring"},
	"internal/ringhook":  {"uring"},
	"internal/ringloop":  {"internal/sys", "uring"},
	"reactor":            {"internal/inflight", "internal/probe", "internal/ringloop", "internal/ringhook", "internal/sys", "uring"},
	"ufile":              {"features", "internal/fdlock", "internal/ringloop", "internal/sys", "reactor", "uring"},
	"ufile/ufiletest":    {},
	"appendlog":          {"internal/loghook", "internal/sys"},
	"internal/epoll":     {"internal/sys"},
	"unet":               {"features", "internal/epoll", "internal/fdlock", "internal/ringloop", "internal/sys", "uring"},
	"unet/event":         {"features", "internal/ringloop", "internal/sys", "uring", "watch"},
	"unet/event/framing": {"unet/event"},
	"unet/ktls":          {"internal/sys"},
	"watch":              {"features", "internal/epoll", "internal/ringloop", "internal/sys", "uring"},
	"watch/watchtest":    {"internal/sys", "watch"},

	// Example programs; they import what a user may import.
	"examples":                   {},
	"examples/checksum":          {"ufile"},
	"examples/durable-log":       {"appendlog"},
	"examples/echo":              {"examples/internal/accept", "examples/internal/options", "unet"},
	"examples/fileserver":        {"examples/internal/options", "unet", "unet/ktls"},
	"examples/http2":             {"examples/internal/options", "unet"},
	"examples/http-watch":        {"examples/http-watch/server", "examples/internal/options"},
	"examples/http-watch/server": {"unet/event/framing", "watch"},
	"examples/internal/accept":   {},
	"examples/internal/handover": {"unet"},
	"examples/internal/options":  {},
	"examples/proxy":             {"examples/internal/accept", "examples/internal/handover", "examples/internal/options", "features", "unet", "unet/event"},
	"examples/redis":             {"examples/internal/options", "unet/event"},
	"examples/restart":           {"examples/internal/handover", "examples/internal/options", "unet"},
	"examples/upload":            {"examples/internal/accept", "examples/internal/options", "features", "reactor", "ufile", "unet", "uring"},

	// For tests and lanes; packages above import them only in tests.
	"github.com/ringside-io/ringside":     {}, // the root: embedded source
	"examples/internal/accept/accepttest": {},
	"internal/testing/bucket":             {},
	"internal/testing/busytest":           {},
	"internal/testing/powercut":           {},
	"internal/testing/ringtest":           {"internal/probe", "internal/sys", "uring"},
	"internal/testing/lint":               {},
	"internal/testing/kernelsim":          {"internal/abi", "internal/sys", "uring"},
	"internal/testing/stress":             {"appendlog", "internal/testing/kernelsim", "reactor", "ufile", "unet", "uring", "watch"},
	"internal/testing/limits":             {},
	"internal/testing/faultsweep":         {"internal/abi", "internal/ringhook", "internal/testing/ringtest", "internal/testing/kernelsim", "internal/sys", "uring"},
	"internal/testing/seccomp":            {"internal/testing/seccomp/filter"},
	"internal/testing/seccomp/filter":     {},
	"internal/testing/vm":                 {"internal/testing/vm/wire"},
	"internal/testing/vm/wire":            {},
	"internal/testing/vm/init":            {"internal/testing/vm/wire"},
	"internal/testing/vm/lane":            {"internal/testing/vm", "internal/testing/vm/wire"},
}

// kernelAccess may use unsafe and golang.org/x/sys.
var kernelAccess = []string{"internal/sys", "internal/testing/seccomp", "internal/testing/seccomp/filter", "internal/testing/vm/init"}

type listed struct {
	ImportPath, Dir                    string
	Imports, TestImports, XTestImports []string
	GoFiles, IgnoredGoFiles            []string
	Module                             *struct{ Path string }
}

// list asks the go command for the packages of the core module on one system.
func list(t *testing.T, goos string, args ...string) []listed {
	t.Helper()
	ringtest.NeedTree(t)
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Dir,Imports,TestImports,XTestImports,GoFiles,IgnoredGoFiles,Module"}, args...)...)
	cmd.Dir = "../../.."
	cmd.Env = append(cmd.Environ(), "GOOS="+goos, "GOARCH=amd64", "GOWORK=off", "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			t.Fatalf("go list: %v\n%s", err, exit.Stderr)
		}
		t.Fatalf("go list: %v", err)
	}
	var pkgs []listed
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p listed
		if err := dec.Decode(&p); err == io.EOF {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

func TestDependenciesGoOneWay(t *testing.T) {
	for _, goos := range []string{"linux", "darwin", "windows"} {
		for _, p := range list(t, goos, "./...") {
			name := strings.TrimPrefix(p.ImportPath, module)
			allowed, known := layers[name]
			if !known {
				t.Errorf("%s is not in the table of layers", name)
				continue
			}
			for _, imp := range p.Imports {
				below, ours := strings.CutPrefix(imp, module)
				if ours && !slices.Contains(allowed, below) {
					t.Errorf("%s: %s must not import %s", goos, name, below)
				}
				kernel := imp == "unsafe" || strings.HasPrefix(imp, "golang.org/x/sys")
				if kernel && !slices.Contains(kernelAccess, name) {
					t.Errorf("%s: %s must not import %s: that is for %v", goos, name, imp, kernelAccess)
				}
			}
		}
	}
}

// TestOutsideDependencies checks all direct and indirect imports of the packages that a
// user imports.
func TestOutsideDependencies(t *testing.T) {
	public := []string{"./uring", "./features", "./reactor", "./ufile/...", "./appendlog", "./unet/...", "./watch/..."}
	for _, goos := range []string{"linux", "darwin", "windows"} {
		for _, p := range list(t, goos, append([]string{"-deps"}, public...)...) {
			if p.Module == nil { // the standard library
				continue
			}
			if m := p.Module.Path; m != path.Clean(module) && m != "golang.org/x/sys" {
				t.Errorf("%s: %s comes from %s: the core module may use only the standard library and golang.org/x/sys", goos, p.ImportPath, m)
			}
			if strings.HasPrefix(p.ImportPath, module+"internal/testing/ringtest") {
				t.Errorf("%s is imported outside of tests", p.ImportPath)
			}
		}
	}
}
