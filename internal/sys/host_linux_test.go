// SPDX-License-Identifier: MIT

package sys

import "testing"

func TestCPUList(t *testing.T) {
	for s, want := range map[string]bool{"": false, "\n": false, "(null)\n": false, "  (null)\n": false, "3\n": true, "1-3,5\n": true} {
		if isCPUList(s) != want {
			t.Errorf("%q: %v", s, !want)
		}
	}
}
