// SPDX-License-Identifier: MIT

package reactor

import (
	"errors"
	"sync/atomic"
	"syscall"
	"time"
)

// drain is how long the kernel may take to give back what a closed ring had
// locked. A worker of it does so, and nothing tells when.
const drain = 2 * time.Second

// closed is when the last ring was closed.
var closed atomic.Int64

// settle opens again while memory is short because of rings that were closed
// just now: who opens and closes in turn had none left in the end.
func settle(open func() (*loop, error)) (*loop, error) {
	until := time.Unix(0, closed.Load()).Add(drain)
	for pause := time.Millisecond; ; pause *= 2 {
		l, err := open()
		if !errors.Is(err, syscall.ENOMEM) || time.Now().Add(pause).After(until) {
			return l, err
		}
		time.Sleep(pause)
	}
}
