// SPDX-License-Identifier: MIT

package watch

import "fmt"

// EnvWatcher is the variable of the environment that names the backend of
// watchers whose options leave the choice open: auto, epoll or io_uring.
const EnvWatcher = "RINGSIDE_WATCHER"

// Backend is a mechanism of the kernel that tells about readiness.
type Backend uint8

const (
	// Auto takes what RINGSIDE_WATCHER names, otherwise io_uring where it works
	// with deferred task work, otherwise epoll.
	Auto Backend = iota
	Epoll
	IOUring
)

var backendNames = [...]string{"auto", "epoll", "io_uring"}

// String returns auto, epoll or io_uring.
func (b Backend) String() string {
	if int(b) < len(backendNames) {
		return backendNames[b]
	}
	return fmt.Sprintf("Backend(%d)", uint8(b))
}

// ParseBackend returns the backend with the given name; the empty one is auto.
func ParseBackend(name string) (Backend, error) {
	for i, n := range backendNames {
		if n == name || name == "" {
			return Backend(i), nil
		}
	}
	return Auto, fmt.Errorf("watch: unknown backend %q: want auto, epoll or io_uring", name)
}

// defaultBatch is how many descriptors one Dispatch reports at most when the
// options do not say.
const defaultBatch = 1024

// Options configure a [Watcher]; the zero value chooses automatically.
type Options struct {
	Backend Backend
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
