// SPDX-License-Identifier: MIT

package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/vm/wire"
)

// bootable returns what a boot needs, without the network, or skips the test.
func bootable(t *testing.T, arch string) (Tools, Kernel) {
	t.Helper()
	if testing.Short() {
		t.Skip("boots a machine: not in short mode")
	}
	tools, err := FindTools(t.Context(), arch, false)
	if err != nil {
		t.Skip("needs qemu:", err)
	}
	for _, version := range []string{"6.1", "6.12"} {
		if k, ok := CachedKernel(arch, version); ok {
			return tools, k
		}
	}
	t.Skip("needs a kernel in the cache: a kernel lane puts it there")
	return Tools{}, Kernel{}
}

// buildGuest compiles a package for the guest.
func buildGuest(t *testing.T, arch, pkg string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "program")
	cmd := exec.Command("go", "build", "-o", out, pkg)
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+arch, "CGO_ENABLED=0", "GOFLAGS=")
	if msg, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", pkg, err, msg)
	}
	return out
}

func TestRun(t *testing.T) {
	for _, arch := range Archs() {
		t.Run(arch, func(t *testing.T) {
			t.Parallel()
			testRun(t, arch)
		})
	}
}

func testRun(t *testing.T, arch string) {
	tools, kernel := bootable(t, arch)
	job := func(what string) wire.Job {
		return wire.Job{Path: "/bin/guest", Args: []string{what}, Dir: "/src/x", Timeout: 2 * time.Minute,
			Env: []string{"RINGSIDE_LANE=here"}}
	}
	hang := job("hang")
	hang.Timeout = time.Second
	nobody := job("look")
	nobody.UID, nobody.GID = 65534, 65534
	missing := job("look")
	missing.Path = "/bin/nothing"

	data := t.TempDir()
	if err := os.WriteFile(filepath.Join(data, "file"), []byte("content"), 0o644); err != nil {
		t.Fatal(err)
	}
	ended := 0
	report, err := Run(t.Context(), Config{
		Arch: arch, Kernel: kernel.Image, Init: buildGuest(t, arch, "./init"), Tools: tools,
		Sysctls: map[string]string{"kernel.threads-max": "7777"},
		Files: []File{
			{Host: buildGuest(t, arch, "./testdata/guest"), Guest: "/bin/guest"},
			{Host: data, Guest: "/src/x/testdata"},
		},
		Jobs:  []wire.Job{job("look"), job("exit"), hang, job("leave"), job("crash"), missing, nobody},
		Ended: func(int, Result) { ended++ },
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, consoleOf(report))
	}
	checkGuest(t, report, kernel, tools)
	if ended != len(report.Results) {
		t.Errorf("%d of %d jobs reported", ended, len(report.Results))
	}
	for i, want := range []Result{
		{Exit: 0, Output: []byte(looks(kernel, 0))},
		{Exit: 3, Output: []byte("no newline\n")},
		{Exit: -1, Note: "timed out after 1s"},
		{Exit: 0, Output: []byte("left <nil>\n")},
		{Exit: 2},
		{Exit: -1, Note: "fork/exec /bin/nothing: no such file or directory"},
		{Exit: 0, Output: []byte(looks(kernel, 65534))},
	} {
		got := report.Results[i]
		if got.Exit != want.Exit || got.Note != want.Note || want.Output != nil && string(got.Output) != string(want.Output) {
			t.Errorf("job %d: exit %d, %q, output:\n%s\nwant %d, %q:\n%s", i,
				got.Exit, got.Note, got.Output, want.Exit, want.Note, want.Output)
		}
	}
	for i, want := range map[int]string{2: "SIGQUIT", 4: "nil pointer"} {
		if got := string(report.Results[i].Output); !strings.Contains(got, want) {
			t.Errorf("job %d: no %s in the output:\n%s", i, want, got)
		}
	}
}

// looks is the output of the guest program where all is well.
func looks(k Kernel, uid int) string {
	release := strings.TrimPrefix(k.Package, "linux-image-")
	return fmt.Sprintf("release %s <nil>\nfile content <nil>\nuid %d lane here\nthreads-max 7777 <nil>\n"+
		"dial localhost:0 <nil>\ndial [::1]:0 <nil>\ntemp <nil> true\n", release, uid)
}

func checkGuest(t *testing.T, r *Report, k Kernel, tools Tools) {
	t.Helper()
	if len(r.Guest.Notes) > 0 {
		t.Errorf("preparations failed: %q", r.Guest.Notes)
	}
	if !strings.HasPrefix(r.Guest.Release, k.Version+".") || r.Guest.CPUs != 2 || r.Boot <= 0 {
		t.Errorf("booted in %v: %+v", r.Boot, r.Guest)
	}
	if tools.Mkfs == "" {
		return
	}
	if m := r.Guest.Mounts; len(m) != 2 || m[1] != (wire.Mount{Path: "/scratch", Type: "ext4", Direct: true}) {
		t.Errorf("mounts %+v", m)
	}
}

func consoleOf(r *Report) string {
	if r == nil {
		return ""
	}
	return string(r.Console)
}

// A machine whose first process fails must be reported, not waited for.
func TestRunBrokenGuest(t *testing.T) {
	t.Parallel()
	tools, kernel := bootable(t, "amd64")
	init := filepath.Join(t.TempDir(), "init")
	if err := os.WriteFile(init, []byte("no program"), 0o755); err != nil {
		t.Fatal(err)
	}
	report, err := Run(t.Context(), Config{
		Kernel: kernel.Image, Init: init, Tools: tools,
		Jobs: []wire.Job{{Path: "/bin/x", Timeout: time.Second}},
	})
	if err == nil || report == nil || report.Results[0].OK() {
		t.Fatalf("got %+v, %v", report, err)
	}
	if !strings.Contains(consoleOf(report), "Kernel panic") {
		t.Errorf("console:\n%s", consoleOf(report))
	}
}

// A setting that the kernel does not have must not be ignored.
func TestRunUnknownSysctl(t *testing.T) {
	t.Parallel()
	tools, kernel := bootable(t, "amd64")
	_, err := Run(t.Context(), Config{
		Kernel: kernel.Image, Init: buildGuest(t, "amd64", "./init"), Tools: tools,
		Sysctls: map[string]string{"kernel.nothing": "1"},
		Jobs:    []wire.Job{{Path: "/bin/x", Timeout: time.Second}},
	})
	if err == nil || !strings.Contains(err.Error(), "/proc/sys/kernel/nothing") {
		t.Errorf("got %v", err)
	}
}

func TestRunCancelled(t *testing.T) {
	t.Parallel()
	tools, kernel := bootable(t, "amd64")
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("no longer wanted")
	_, err := Run(ctx, Config{
		Kernel: kernel.Image, Init: buildGuest(t, "amd64", "./init"), Tools: tools,
		Files:  []File{{Host: buildGuest(t, "amd64", "./testdata/guest"), Guest: "/bin/guest"}},
		Jobs:   []wire.Job{{Path: "/bin/guest", Args: []string{"hang"}, Dir: "/", Timeout: time.Minute}},
		Booted: func(*Report) { cancel(cause) },
	})
	if !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}
