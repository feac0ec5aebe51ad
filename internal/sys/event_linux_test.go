// SPDX-License-Identifier: MIT

package sys

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSignal checks that each signal adds one: the loops never read their eventfd, and a signal
// that added more in the byte order of some machine would block when the counter is full.
func TestSignal(t *testing.T) {
	fd, err := EventFD()
	if err != nil {
		t.Fatal(err)
	}
	defer fd.Close()
	const signals = 300
	for range signals {
		Signal(fd)
	}
	p := make([]byte, 8)
	if n, err := unix.Read(fd.Int(), p); n != 8 || err != nil {
		t.Fatal(n, err)
	}
	if n := binary.NativeEndian.Uint64(p); n != signals {
		t.Errorf("the counter is %d after %d signals", n, signals)
	}
}
