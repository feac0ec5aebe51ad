// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fakeGo is a go command that describes itself and copies a program, and does not end otherwise. As the real one, it
// waits for its children after an interrupt.
const fakeGo = `#!/bin/sh
case "$*" in
env*) echo '{"GOVERSION": "go1.26.8", "GOROOT": "/usr/lib/go", "GOMODCACHE": "/mod", "GOOS": "windows"}'; exit;;
*-o*program) while [ "$1" != -o ]; do shift; done; cp "$0.program" "$2"; exit;;
esac
trap : INT
sleep 1000
exit 3
`

// TestGoCommandsEndBySignals signals the commands that run a go command, a program or a load. Their children have
// children, which end too.
// Promise: cli/signal-ends-command
func TestGoCommandsEndBySignals(t *testing.T) {
	bin := t.TempDir()
	for name, text := range map[string]string{"go": fakeGo, "go.program": "#!/bin/sh\nsleep 1000\nexit 3\n"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for _, tc := range []struct {
		args  string
		sleep int // processes that sleep
	}{
		{"build", 1},
		{"test ./...", 1},
		{"run . argument", 1},
		{"try package", 1}, // builds
		{"try program", 1}, // runs it
		{"try program --before sleep_1000;:", 1},
		{"try program --load sleep_1000;:", 2},
	} {
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
			t.Run(tc.args+"/"+sig.String(), func(t *testing.T) {
				dir := t.TempDir()
				args := strings.Fields(tc.args)
				for i := range args {
					args[i] = strings.ReplaceAll(args[i], "_", " ")
				}
				r := startCommand(t, dir, args)
				var all []int
				eventually(t, "the work", func() bool {
					all = below(r.cmd.Process.Pid)
					return len(slices.DeleteFunc(slices.Clone(all), func(pid int) bool { return !sleeps(pid) })) == tc.sleep
				})
				if err := r.cmd.Process.Signal(sig); err != nil {
					t.Fatal(err)
				}
				stuck := time.AfterFunc(patience, func() {
					for _, pid := range append(all, r.cmd.Process.Pid) {
						_ = syscall.Kill(pid, syscall.SIGKILL)
					}
				})
				_ = r.cmd.Wait() // the code is checked below
				if !stuck.Stop() {
					t.Error("it did not end in time")
				}
				if code := r.cmd.ProcessState.ExitCode(); code != exitInterrupted || !strings.Contains(r.stderr.String(), "interrupted") {
					t.Errorf("exit %d: %s", code, &r.stderr)
				}
				eventually(t, "the end of its processes", func() bool { return !slices.ContainsFunc(all, isThere) })
				wantEmpty(t, dir)
			})
		}
	}
}

// below returns the children of a process, and theirs.
func below(pid int) []int {
	all := childrenOf(pid)
	for _, child := range all {
		all = append(all, below(child)...)
	}
	return all
}

func sleeps(pid int) bool {
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return string(name) == "sleep\n"
}
