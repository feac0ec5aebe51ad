// SPDX-License-Identifier: MIT

package probe

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/ringside-io/ringside/internal/sys"
)

// Version is a kernel version. It appears in messages and tests, never in a
// decision: distributions move features between versions.
type Version struct{ Major, Minor int }

// String returns the version as major.minor.
func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

// Less reports whether v is older than w.
func (v Version) Less(w Version) bool {
	return v.Major < w.Major || v.Major == w.Major && v.Minor < w.Minor
}

// ParseVersion reads the leading major.minor of a release such as
// 6.1.0-47-amd64.
func ParseVersion(release string) (Version, error) {
	major, rest, ok := strings.Cut(release, ".")
	if !ok {
		return Version{}, fmt.Errorf("kernel release %q has no major.minor", release)
	}
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end >= 0 {
		rest = rest[:end]
	}
	a, err1 := strconv.Atoi(major)
	b, err2 := strconv.Atoi(rest)
	if err1 != nil || err2 != nil {
		return Version{}, fmt.Errorf("kernel release %q has no major.minor", release)
	}
	return Version{a, b}, nil
}

// Release returns the release of the running kernel as uname -r prints it, ""
// when unknown.
func Release() string { return sys.KernelRelease() }

// Kernel returns the version of the running kernel.
func Kernel() (Version, error) { return ParseVersion(sys.KernelRelease()) }
