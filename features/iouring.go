// SPDX-License-Identifier: MIT

package features

// EnvIOURing is the variable of the environment that, set to "off", makes
// every probe answer that io_uring is forbidden, so that all packages of this
// module use their fallbacks. It is read at each call. Other values mean
// nothing.
const EnvIOURing = "RINGSIDE_IOURING"

// HaveIOURing tells whether a ring can be opened and used: setup, a no-op
// through the queues, and the opcode probe. (Linux 5.6)
func HaveIOURing() error { return kernel.haveIOURing() }

func (h *host) haveIOURing() error {
	_, err := h.usable()
	return err
}

// switchedOff answers for the user who wants no io_uring.
func (h *host) switchedOff() error {
	if h.getenv(EnvIOURing) != "off" {
		return nil
	}
	return &ForbiddenError{Feature: nameIOURing, Policy: PolicyEnvironment,
		Reason: "the variable " + EnvIOURing + " is off", Remedy: "unset " + EnvIOURing}
}
