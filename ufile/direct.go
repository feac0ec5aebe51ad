// SPDX-License-Identifier: MIT

package ufile

import "github.com/ringside-io/ringside/internal/sys"

// DirectAlign is an alignment in bytes that satisfies O_DIRECT on every
// common device.
const DirectAlign = 4096

// AlignedBuffer returns n bytes of memory aligned to DirectAlign, for files
// opened with O_DIRECT.
func AlignedBuffer(n int) []byte { return sys.AlignedBytes(n, DirectAlign) }
