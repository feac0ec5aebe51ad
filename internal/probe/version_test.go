// SPDX-License-Identifier: MIT

package probe_test

import (
	"testing"

	"github.com/ringside-io/ringside/internal/probe"
)

func TestParseVersion(t *testing.T) {
	for release, want := range map[string]probe.Version{
		"6.1.0-47-amd64":           {6, 1},
		"5.15":                     {5, 15},
		"6.18.44-fc-v657":          {6, 18},
		"5.14.0-570.el9.x86_64":    {5, 14},
		"4.4.0":                    {4, 4},
		"6.12+":                    {6, 12},
		"5.10.16.3-microsoft-WSL2": {5, 10},
	} {
		if got, err := probe.ParseVersion(release); err != nil || got != want {
			t.Errorf("%q: got %v, %v; want %v", release, got, err, want)
		}
	}
	for _, release := range []string{"", "6", "6.", ".1", "a.b", "6.x", "99999999999999999999.1"} {
		if got, err := probe.ParseVersion(release); err == nil {
			t.Errorf("%q: got %v, want an error", release, got)
		}
	}
}

func TestVersionLess(t *testing.T) {
	versions := []probe.Version{{4, 19}, {5, 1}, {5, 9}, {5, 10}, {6, 0}, {6, 18}, {7, 0}}
	for i, v := range versions {
		for j, w := range versions {
			if got := v.Less(w); got != (i < j) {
				t.Errorf("%v < %v: %v", v, w, got)
			}
		}
	}
}

func FuzzParseVersion(f *testing.F) {
	f.Add("6.1.0-47-amd64")
	f.Add("5.")
	f.Fuzz(func(t *testing.T, release string) {
		v, err := probe.ParseVersion(release)
		if err != nil {
			return
		}
		again, err := probe.ParseVersion(v.String())
		if err != nil || again != v {
			t.Errorf("%q gives %v, which gives %v, %v", release, v, again, err)
		}
	})
}
