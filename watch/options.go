// SPDX-License-Identifier: MIT

package watch

import "fmt"

// EnvWatcher is the variable of the environment that names the backend of
// watchers whose options leave the choice open: auto, epoll or io_uring.
const EnvWatcher = "RINGSIDE_WATCHER"

// Mode says by what a [Watcher] learns of readiness.
type Mode uint8

const (
	// ModeAuto takes what RINGSIDE_WATCHER names, otherwise io_uring where it works
	// with deferred task work, otherwise epoll.
	ModeAuto Mode = iota
	// ModeEpoll insists on epoll.
	ModeEpoll
	// ModeRing insists on io_uring.
	ModeRing
)

var modeNames = [...]string{"auto", "epoll", "io_uring"}

// String returns auto, epoll or io_uring.
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}

// ParseMode returns the mode with the given name; the empty one is auto.
func ParseMode(name string) (Mode, error) {
	for i, n := range modeNames {
		if n == name || name == "" {
			return Mode(i), nil
		}
	}
	return ModeAuto, fmt.Errorf("watch: unknown mode %q: want auto, epoll or io_uring", name)
}

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
