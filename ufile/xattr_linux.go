// SPDX-License-Identifier: MIT

package ufile

import (
	"strings"
	"syscall"

	"github.com/ringside-io/ringside/internal/sys"
)

// ErrNoXattr is matched by the error of a call that names an extended
// attribute which the file does not have.
var ErrNoXattr error = syscall.ENODATA

type inode = sys.Inode

func getxattr(i inode, attr string) ([]byte, error) {
	return growing(func(p []byte) (int, error) { return sys.Getxattr(i, attr, p) })
}

func setxattr(i inode, attr string, value []byte, flags XattrFlags) error {
	return sys.Setxattr(i, attr, value, int(flags))
}

func listxattr(i inode) ([]string, error) {
	p, err := growing(func(p []byte) (int, error) { return sys.Listxattr(i, p) })
	return splitNames(p), err
}

func removexattr(i inode, attr string) error { return sys.Removexattr(i, attr) }

// growing calls with larger and larger memory until the answer fits: what it is
// about may grow at any time.
func growing(call func(p []byte) (int, error)) ([]byte, error) {
	const most = 64 << 10 // XATTR_SIZE_MAX, XATTR_LIST_MAX
	for size := 256; ; size *= 4 {
		p := make([]byte, min(size, most))
		n, err := call(p)
		switch {
		case err == nil:
			return p[:n:n], nil
		case err != syscall.ERANGE || size >= most:
			return nil, err
		}
	}
}

// splitNames splits what the kernel returns as a list of attributes.
func splitNames(p []byte) []string {
	list := strings.TrimSuffix(string(p), "\x00")
	if list == "" {
		return nil
	}
	return strings.Split(list, "\x00")
}
