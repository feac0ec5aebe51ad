// SPDX-License-Identifier: MIT

package hostinfo

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tree makes a directory with these files.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestSpoilers(t *testing.T) {
	const group = "0::/box/inner\n"
	for name, test := range map[string]struct {
		check func(string) string
		files map[string]string
		says  string // "" for no spoiler
	}{
		"governor":            {governor, map[string]string{"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave\n"}, "powersave"},
		"steady clock":        {governor, map[string]string{"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n"}, ""},
		"no governor":         {governor, nil, ""},
		"quota":               {cpuLimit, map[string]string{"proc/self/cgroup": group, "sys/fs/cgroup/box/inner/cpu.max": "50000 100000\n"}, "0.5 of"},
		"quota of a parent":   {cpuLimit, map[string]string{"proc/self/cgroup": group, "sys/fs/cgroup/box/inner/cpu.max": "max 100000\n", "sys/fs/cgroup/box/cpu.max": "50000 100000\n"}, "0.5 of"},
		"no quota":            {cpuLimit, map[string]string{"proc/self/cgroup": group, "sys/fs/cgroup/box/inner/cpu.max": "max 100000\n"}, ""},
		"little memory":       {memoryLimit, map[string]string{"proc/self/cgroup": group, "sys/fs/cgroup/box/memory.max": "536870912\n"}, "512 MiB"},
		"memory unlimited":    {memoryLimit, map[string]string{"proc/self/cgroup": group, "sys/fs/cgroup/box/memory.max": "max\n"}, ""},
		"no control group":    {memoryLimit, nil, ""},
		"groups of version 1": {cpuLimit, map[string]string{"proc/self/cgroup": "3:cpu:/box\n"}, ""},
	} {
		text := test.check(tree(t, test.files))
		if (text == "") != (test.says == "") || !strings.Contains(text, test.says) {
			t.Errorf("%s: %q, want %q in it", name, text, test.says)
		}
	}
}

func TestJiffies(t *testing.T) {
	path := filepath.Join(tree(t, map[string]string{"stat": "cpu  90 0 50 800 50 0 0 10 0 0\ncpu0 1 1 1 1 1 1 1 1\n"}), "stat")
	if got, ok := jiffies(path); !ok || got != (cpuTime{idle: 850, stolen: 10, total: 1000}) {
		t.Errorf("%+v, %v", got, ok)
	}
	if _, ok := jiffies(path + "x"); ok {
		t.Error("CPU times of a missing file")
	}
}
