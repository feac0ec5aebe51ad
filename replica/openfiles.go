// SPDX-License-Identifier: MIT

package replica

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// openFiles are the databases of this node whose files are open for writing.
type openFiles struct {
	most    int // Options.OpenDatabases
	closing context.Context
	log     *slog.Logger

	mu       sync.Mutex
	open     []*database // the most recently opened last
	trimming bool        // trim is called again later
}

// add records that a database has open files, and closes those of other databases if too
// many are open.
func (o *openFiles) add(db *database) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open = append(slices.DeleteFunc(o.open, func(d *database) bool { return d == db }), db)
	o.trim(db)
}

// trim closes the files of the databases that were opened first, but not those of db. Those
// that are in use are looked at again later. mu is locked.
func (o *openFiles) trim(db *database) {
	for i := 0; len(o.open) > o.most && i < len(o.open); {
		old := o.open[i]
		if old == db || !old.mu.TryLock() {
			i++
			continue
		}
		if old.writers.Load() > 0 || old.broken != nil || len(old.deferred) > 0 {
			old.mu.Unlock()
			i++
			continue
		}
		if err := old.close(); err != nil {
			o.log.Warn("replica: closing an idle database", "database", old.name, "error", err)
		}
		old.mu.Unlock()
		o.open = slices.Delete(o.open, i, i+1)
	}
	if len(o.open) > o.most && !o.trimming && o.closing.Err() == nil {
		o.trimming = true
		time.AfterFunc(time.Second, func() {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.trimming = false
			if o.closing.Err() == nil {
				o.trim(nil)
			}
		})
	}
}

func (o *openFiles) remove(db *database) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open = slices.DeleteFunc(o.open, func(d *database) bool { return d == db })
}
