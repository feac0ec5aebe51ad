// SPDX-License-Identifier: MIT

//go:build !unix

package fileserver

import "os"

const openFlags = os.O_RDONLY
