// SPDX-License-Identifier: MIT

package engine

import "os"

// OS reads through [os.File]: the incumbent.
type OS struct{}

// Name returns "os".
func (OS) Name() string { return NameOS }

// Backend tells that each read is one blocking system call.
func (OS) Backend() (name, reason string) { return "syscall", "os.File" }

// OpenRead opens the file with [os.OpenFile].
func (OS) OpenRead(name string, direct bool) (File, error) {
	flag, err := readFlags(name, direct)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(name, flag, 0)
	if err != nil {
		return nil, err
	}
	return f, nil
}
