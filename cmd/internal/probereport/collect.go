// SPDX-License-Identifier: MIT

package probereport

import (
	"errors"

	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/ufile"
)

// Collect asks the kernel, and each package what it would do.
func Collect() features.Report {
	name, reason := ufile.Backend()
	return features.Collect(choice("ufile", name, reason, features.HaveIOURing()))
}

// choice describes what a package chose. A reason that is the answer of the probe for io_uring is
// taken apart, so that the line to change stands on its own.
func choice(pkg, backend, reason string, answer error) features.Package {
	p := features.Package{Name: pkg, Backend: backend, Reason: reason}
	if backend == "io_uring" && reason == "" {
		p.Reason = "the kernel has what it needs and lets this process use it"
	}
	if no, ok := errors.AsType[*features.ForbiddenError](answer); ok && reason == no.Error() {
		p.Reason, p.Remedy = "forbidden: "+no.Reason, no.Remedy
	}
	return p
}
