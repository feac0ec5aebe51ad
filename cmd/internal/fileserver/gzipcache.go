// SPDX-License-Identifier: MIT

package fileserver

import (
	"container/list"
	"runtime"
	"sync"
)

// gzipKeep bounds the memory of compressed files; each counts at least gzipLeast.
const (
	gzipKeep  = 64 << 20
	gzipLeast = 512
)

// gzipKey is a file that was compressed, in the state that it had.
type gzipKey struct {
	name  string
	state fileState
}

// gzipCache keeps compressed files, those that were asked for last.
type gzipCache struct {
	mu      sync.Mutex
	entries map[gzipKey]*list.Element
	recent  list.List // of *gzipEntry, the last used one first
	bytes   int
	busy    map[gzipKey]bool
}

type gzipEntry struct {
	key  gzipKey
	data []byte // nil if compressing does not pay
}

func newGzipCache() *gzipCache {
	return &gzipCache{entries: map[gzipKey]*list.Element{}, busy: map[gzipKey]bool{}}
}

// get returns the compressed form of a file, nil if there is none: because it does not pay, or because
// it is being made, or as many others are as there are processors. Whoever meets that gets the
// file as it is rather than waits.
func (c *gzipCache) get(key gzipKey, compress func() ([]byte, bool)) []byte {
	c.mu.Lock()
	if e := c.entries[key]; e != nil {
		c.recent.MoveToFront(e)
		c.mu.Unlock()
		return e.Value.(*gzipEntry).data
	}
	if c.busy[key] || len(c.busy) >= runtime.GOMAXPROCS(0) {
		c.mu.Unlock()
		return nil
	}
	c.busy[key] = true
	c.mu.Unlock()
	data, ok := compress()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.busy, key)
	if ok {
		c.keep(&gzipEntry{key, data})
	}
	return data
}

func (c *gzipCache) keep(e *gzipEntry) {
	c.entries[e.key] = c.recent.PushFront(e)
	c.bytes += len(e.data) + gzipLeast
	for c.bytes > gzipKeep {
		last := c.recent.Back()
		old := c.recent.Remove(last).(*gzipEntry)
		delete(c.entries, old.key)
		c.bytes -= len(old.data) + gzipLeast
	}
}
