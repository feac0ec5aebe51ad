// SPDX-License-Identifier: MIT

//go:build !unix

package measure

import "os/exec"

// Isolate bounds how long a killed command's output is awaited. There are no process groups here.
func Isolate(cmd *exec.Cmd) { cmd.WaitDelay = killGrace }
