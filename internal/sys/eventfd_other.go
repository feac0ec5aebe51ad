// SPDX-License-Identifier: MIT

//go:build !linux

package sys

// EventFD answers ENOSYS.
func EventFD() (*FD, error) { return nil, Error("eventfd", noSys) }

// Signal does nothing.
func Signal(*FD) {}

// ThreadExited knows nothing.
func ThreadExited(int) (exited, sure bool) { return false, true }
