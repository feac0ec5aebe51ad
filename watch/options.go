// SPDX-License-Identifier: MIT

package watch

import "github.com/ringside-io/ringside/features"

// Mode is by what a [Watcher] learns of readiness: ModeAuto, ModeEpoll or ModeRing.
type Mode = features.Mode

const (
	// ModeAuto takes what RINGSIDE_BACKEND names, otherwise io_uring where it works
	// with deferred task work, otherwise epoll.
	ModeAuto = features.ModeAuto
	// ModeEpoll insists on epoll.
	ModeEpoll = features.ModeEpoll
	// ModeRing insists on io_uring.
	ModeRing = features.ModeRing
)

// defaultBatch is how many descriptors one Dispatch reports at most when the
// options do not say.
const defaultBatch = 1024

// Options configure a [Watcher]; the zero value chooses automatically.
type Options struct {
	Mode Mode
	// Batch is how many descriptors one Dispatch reports at most; 0 means
	// 1024. What is left over comes with the next turn.
	Batch int
	// Restrict limits the ring to what a watcher does with it: POLL_ADD,
	// POLL_REMOVE and ASYNC_CANCEL. Anything else that gets hold of it is
	// refused with EACCES. Epoll has nothing to limit.
	Restrict bool
}

func (o *Options) batch() int {
	if o.Batch <= 0 {
		return defaultBatch
	}
	return o.Batch
}
