// SPDX-License-Identifier: MIT

package vm

// UnavailableError reports that this machine lacks something that a kernel lane
// needs, as opposed to a lane that ran and failed.
type UnavailableError struct {
	// Reason is what is missing.
	Reason string
	// Remedy is what to install or run; it may be empty.
	Remedy string
	// Cause is the underlying error; it may be nil.
	Cause error
}

func (e *UnavailableError) Error() string {
	s := e.Reason
	if e.Cause != nil {
		s += " (" + e.Cause.Error() + ")"
	}
	if e.Remedy != "" {
		s += ": " + e.Remedy
	}
	return s
}

// Unwrap returns the cause.
func (e *UnavailableError) Unwrap() error { return e.Cause }
