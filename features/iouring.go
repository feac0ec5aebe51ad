// SPDX-License-Identifier: MIT

package features

// HaveIOURing tells whether a ring can be opened and used: setup, a no-op
// through the queues, and the opcode probe. (Linux 5.6)
func HaveIOURing() error { return kernel.haveIOURing() }

func (h *host) haveIOURing() error {
	_, err := h.usable()
	return err
}

// switchedOff answers for the user who wants no io_uring.
func (h *host) switchedOff() error {
	if h.getenv(EnvBackend) != ModePlain.String() {
		return nil
	}
	return &ForbiddenError{Feature: nameIOURing, Policy: PolicyEnvironment,
		Reason: "the variable " + EnvBackend + " is " + ModePlain.String(), Remedy: "unset " + EnvBackend}
}
