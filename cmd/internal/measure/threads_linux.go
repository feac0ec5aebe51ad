// SPDX-License-Identifier: MIT

package measure

import (
	"bytes"
	"os"
)

// threadCounter reads the number of threads from /proc without allocating, because it runs inside
// measured windows. The number includes threads that io_uring starts for the process.
type threadCounter struct {
	status *os.File
	buf    [4096]byte
}

func newThreadCounter() *threadCounter {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return &threadCounter{}
	}
	return &threadCounter{status: f}
}

var threadsKey = []byte("\nThreads:")

func (c *threadCounter) count() int {
	if c.status == nil {
		return 0
	}
	n, _ := c.status.ReadAt(c.buf[:], 0) // io.EOF is expected
	at := bytes.Index(c.buf[:n], threadsKey)
	if at < 0 {
		return 0
	}
	count := 0
	for _, b := range c.buf[at+len(threadsKey) : n] {
		switch {
		case b >= '0' && b <= '9':
			count = count*10 + int(b-'0')
		case b == '\n':
			return count
		}
	}
	return count
}

func (c *threadCounter) close() {
	if c.status != nil {
		_ = c.status.Close() // it was only read
	}
}
