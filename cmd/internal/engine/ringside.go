// SPDX-License-Identifier: MIT

package engine

import "github.com/ringside-io/ringside/ufile"

// Ringside reads through [ufile.File]: io_uring where it is usable, plain calls elsewhere.
type Ringside struct{}

// Name returns "ringside".
func (Ringside) Name() string { return NameRingside }

// Backend returns what ufile chose for this process.
func (Ringside) Backend() (name, reason string) {
	name, reason = ufile.Backend()
	if reason == "" {
		reason = "the kernel has what ufile needs and lets this process use it"
	}
	return name, reason
}

// OpenRead opens the file with [ufile.OpenFile].
func (Ringside) OpenRead(name string, direct bool) (File, error) {
	flag, err := readFlags(name, direct)
	if err != nil {
		return nil, err
	}
	f, err := ufile.OpenFile(name, flag, 0)
	if err != nil {
		return nil, err
	}
	return f, nil
}
