// SPDX-License-Identifier: MIT

package watch

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/ringside-io/ringside/features"
)

// Mode selects the backend of a [Watcher]: ModeAuto, ModeEpoll or ModeRing.
type Mode = features.Mode

const (
	// ModeAuto is the backend that RINGSIDE_BACKEND names, otherwise io_uring where
	// deferred task work is available, otherwise epoll.
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
	// Batch is the largest number of descriptors that one Dispatch reports; 0 means
	// 1024. The others are reported in the next turn.
	Batch int
	// Restrict limits the ring to the operations of a watcher: POLL_ADD, POLL_REMOVE
	// and ASYNC_CANCEL. The kernel refuses all others with EACCES. It has no effect on
	// epoll.
	Restrict bool
	// Logger receives the chosen backend at INFO, if it is set. A change to epoll while
	// the watcher runs is reported at WARN, to slog.Default() if Logger is nil.
	Logger *slog.Logger
}

func (o *Options) logger() *slog.Logger {
	if o.Logger != nil {
		return o.Logger
	}
	return slog.Default()
}

func (o *Options) batch() int {
	if o.Batch <= 0 {
		return defaultBatch
	}
	return o.Batch
}

// choose opens the backend that the options or the environment name, or the one
// that works.
func (w *Watcher) choose() error {
	b, by := w.opts.Mode, "the options"
	if b == ModeAuto {
		var err error
		if b, err = features.ParseMode(os.Getenv(features.EnvBackend)); err != nil {
			return fmt.Errorf("watch: %w (%s)", err, features.EnvBackend)
		}
		if by = features.EnvBackend; b != ModeRing && b != ModeEpoll {
			b = ModeAuto
		}
	}
	reason := "asked for by " + by
	switch b {
	case ModeRing:
		return w.useRing(reason)
	case ModeEpoll:
		return w.useEpoll(reason)
	case ModeAuto:
		w.chosen = true
		err := w.useRing("the kernel defers task work to the thread that waits")
		if err == nil {
			return nil
		}
		return w.useEpoll("io_uring cannot be used: " + err.Error())
	}
	return fmt.Errorf("watch: no mode %v: want auto, io_uring or epoll", b)
}

func (w *Watcher) useEpoll(reason string) error {
	b, err := newEpoll(&w.table, w.opts.batch(), &w.count.enters)
	if err != nil {
		return fmt.Errorf("watch: epoll: %w", err)
	}
	w.use(b, ModeEpoll, reason)
	return nil
}

func (w *Watcher) use(b backend, name Mode, reason string) {
	w.choiceMu.Lock()
	defer w.choiceMu.Unlock()
	w.backend, w.name, w.reason = b, name, reason
	w.looksAgain = name == ModeRing
}
