// SPDX-License-Identifier: MIT

package uring

import "encoding/binary"

// bigEndian is the byte order of this machine.
var bigEndian = binary.NativeEndian.Uint16([]byte{1, 0}) != 1
