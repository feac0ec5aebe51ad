// SPDX-License-Identifier: MIT

package reactor

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ringside-io/ringside/internal/ringloop"
)

// netpolled waits in Go's netpoller until a ring's descriptor is readable. No thread
// blocks meanwhile.
type netpolled struct {
	fd       int
	poller   *ringloop.Poller
	stopping atomic.Bool
	done     sync.WaitGroup
}

func (p *netpolled) start(ready func(), failed func(error)) (err error) {
	if p.poller, err = ringloop.NewPoller(p.fd, "io_uring"); err != nil {
		return err
	}
	p.done.Go(func() {
		// Wait calls the function each time the ring becomes readable. The function
		// always returns false, so Wait returns when the poller is closed.
		err := p.poller.Wait(func(uintptr) bool {
			ready()
			return false
		})
		if !p.stopping.Load() {
			failed(fmt.Errorf("poll the ring's descriptor: %w", err))
		}
	})
	return nil
}

func (p *netpolled) stop() error {
	p.stopping.Store(true)
	err := p.poller.Close()
	p.done.Wait()
	return err
}
