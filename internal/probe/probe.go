// SPDX-License-Identifier: MIT

package probe

import (
	"sync"
	"sync/atomic"
)

// Cache keeps the answers to questions that are expensive to ask. All methods
// may be called concurrently; a question is asked once at a time, and those who
// want the same answer wait for it.
type Cache[K comparable, V any] struct {
	// Conclusive reports whether an answer with this error stays true. Others are
	// asked again. It must be set before the first use.
	Conclusive func(error) bool

	entries sync.Map // K to *entry[V]
}

type entry[V any] struct {
	asking sync.Mutex
	answer atomic.Pointer[answer[V]]
}

type answer[V any] struct {
	value V
	err   error
}

// Get returns the kept answer for key, or asks and keeps the answer if it is
// conclusive. The question may use the cache for other keys.
func (c *Cache[K, V]) Get(key K, ask func() (V, error)) (V, error) {
	v, ok := c.entries.Load(key)
	if !ok {
		v, _ = c.entries.LoadOrStore(key, new(entry[V]))
	}
	e := v.(*entry[V])
	if a := e.answer.Load(); a != nil {
		return a.value, a.err
	}
	e.asking.Lock()
	defer e.asking.Unlock()
	if a := e.answer.Load(); a != nil {
		return a.value, a.err
	}
	value, err := ask()
	if c.Conclusive(err) {
		e.answer.Store(&answer[V]{value, err})
	}
	return value, err
}
