// SPDX-License-Identifier: MIT

package ringtest

import (
	"os"
	"strings"
	"testing"
)

func TestToBecome(t *testing.T) {
	const (
		all  = "         0          0 4294967295\n"
		one  = "         0       1000          1\n"
		some = "0 1000 1\n1 100000 65536\n"
		root = "Name:\tx\nCapEff:\t000001ffffffffff\n"
	)
	for name, test := range map[string]struct {
		status, uids, gids, groups string
		id                         int
		missing                    string // part of it
	}{
		"root":                    {root, all, all, "allow\n", 65534, ""},
		"a user":                  {"CapEff:\t0000000000000000\n", all, all, "allow\n", 65534, "CAP_SETUID"},
		"without one capability":  {"CapEff:\t0000000000000080\n", all, all, "allow\n", 65534, "CAP_SETGID"},
		"a namespace of one user": {root, one, one, "deny\n", 65534, "uid_map"},
		"the user itself":         {root, one, one, "deny\n", 0, "setgroups"},
		"a container":             {root, some, some, "allow\n", 65534, ""},
		"beyond a container":      {root, some, some, "allow\n", 1 << 20, "uid_map"},
		"groups not mapped":       {root, all, one, "allow\n", 65534, "gid_map"},
		"nothing mapped":          {root, "", "", "allow\n", 65534, "uid_map"},
		"nothing told":            {"", all, all, "allow\n", 65534, "CAP_SETUID"},
	} {
		files := map[string]string{"status": test.status, "uid_map": test.uids, "gid_map": test.gids, "setgroups": test.groups}
		read := func(name string) ([]byte, error) { return []byte(files[strings.TrimPrefix(name, "/proc/self/")]), nil }
		if got := toBecome(read, test.id); (got == "") != (test.missing == "") || !strings.Contains(got, test.missing) {
			t.Errorf("%s: %q, want %q", name, got, test.missing)
		}
	}
	none := func(name string) ([]byte, error) { return nil, os.ErrNotExist }
	if got := toBecome(none, 1); got == "" {
		t.Error("without /proc: want an error")
	}
}
