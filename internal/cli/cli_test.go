// SPDX-License-Identifier: MIT

package cli

import (
	"runtime/debug"
	"strings"
	"testing"
)

// TestSource: the commit is that of the program. Only where "go run" has just built it is that what the
// repository has.
func TestSource(t *testing.T) {
	const cached = "/home/x/.cache/go-build/01/"
	hash := strings.Repeat("0123456789abcdef", 4)
	record := func(modified string) []debug.BuildSetting {
		return []debug.BuildSetting{{Key: "vcs.modified", Value: modified}, {Key: "vcs.revision", Value: "0123456789abcdef0123"}}
	}
	for _, c := range []struct {
		version, path string
		settings      []debug.BuildSetting
		want          Source
	}{
		{"v1.2.3", "/usr/bin/ringside", nil, Source{"v1.2.3", ""}},
		{"", "/usr/bin/ringside", nil, Source{"(devel)", ""}},
		{"(devel)", "/src/ringside", nil, Source{"(devel)", ""}},
		{"(devel)", "/src/ringside", record("false"), Source{"(devel)", "0123456789ab"}},
		{"(devel)", "/src/ringside", record("true"), Source{"(devel)", "0123456789ab-dirty"}},
		{"(devel)", "/tmp/go-build123/b001/exe/ringside", nil, Source{"(devel)", "now"}},
		{"(devel)", cached + hash + "-d/ringside", nil, Source{"(devel)", "now"}},
		{"(devel)", cached + hash + "-d/ringside", record("false"), Source{"(devel)", "0123456789ab"}},
		{"v1.2.3", cached + hash + "-d/ringside", nil, Source{"v1.2.3", ""}}, // go run PACKAGE@v1.2.3
	} {
		info := &debug.BuildInfo{Main: debug.Module{Version: c.version}, Settings: c.settings}
		if got := source(info, c.path, func() string { return "now" }); got != c.want {
			t.Errorf("%s, %q: %+v, want %+v", c.path, c.version, got, c.want)
		}
	}
}
