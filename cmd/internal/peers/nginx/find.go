// SPDX-License-Identifier: MIT

package nginx

import (
	"errors"
	"os/exec"
	"strings"
)

// Name is the engine's name in tables and result files.
const Name = "nginx"

// ErrMissing is matched by errors where nginx is not installed.
var ErrMissing = errors.New("nginx is not installed (Debian: apt-get install nginx-light)")

// find returns the program's path, and what it calls itself. It often lies where only root looks.
func find() (path, version string, err error) {
	if path, err = exec.LookPath(Name); err != nil {
		if path, err = exec.LookPath("/usr/sbin/" + Name); err != nil {
			return "", "", ErrMissing
		}
	}
	out, err := exec.Command(path, "-v").CombinedOutput()
	if err != nil {
		return "", "", err
	}
	return path, strings.TrimPrefix(strings.TrimSpace(string(out)), "nginx version: "), nil
}
