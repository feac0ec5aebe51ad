// SPDX-License-Identifier: MIT

package powercut

import (
	"sync/atomic"
	"syscall"
)

// process is the owner of open files. After a kill it changes nothing.
type process struct{ dead atomic.Bool }

func (p *process) gone() error {
	if p.dead.Load() {
		return syscall.EIO
	}
	return nil
}

// sync records a sync.
func (r *Recorder) sync(p *process, number int, sync func() error) error {
	if err := p.gone(); err != nil {
		return err
	}
	return r.SyncedOrLost(number, sync)
}
