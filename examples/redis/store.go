// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"hash/maphash"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
)

var (
	errFull    = errors.New("no memory left: see -max-memory")
	errInteger = errors.New("the value is not an integer of 64 bits, or would not be one")
)

// overhead is roughly the memory of an entry besides its bytes.
const overhead = 64

// store holds the data. It is split into parts, so that loops seldom wait for
// each other.
type store struct {
	seed  maphash.Seed
	most  int64
	bytes atomic.Int64
	parts [64]part
}

type part struct {
	mu sync.Mutex
	m  map[string][]byte // a value is replaced, never changed
}

func newStore(most int64) *store {
	s := &store{seed: maphash.MakeSeed(), most: most}
	for i := range s.parts {
		s.parts[i].m = map[string][]byte{}
	}
	return s
}

func (s *store) part(key []byte) *part {
	return &s.parts[maphash.Bytes(s.seed, key)%uint64(len(s.parts))]
}

// get returns the value of a key, which must not be changed.
func (s *store) get(key []byte) (value []byte, ok bool) {
	p := s.part(key)
	p.mu.Lock()
	defer p.mu.Unlock()
	value, ok = p.m[string(key)]
	return value, ok
}

// set copies key and value.
func (s *store) set(key, value []byte) error {
	p := s.part(key)
	p.mu.Lock()
	defer p.mu.Unlock()
	return s.put(p, key, append(make([]byte, 0, len(value)), value...))
}

// put keeps the value. The caller holds the part's mutex.
func (s *store) put(p *part, key, value []byte) error {
	old, known := p.m[string(key)]
	grows := int64(len(value) - len(old))
	if !known {
		grows += int64(len(key)) + overhead
	}
	if s.bytes.Add(grows) > s.most && grows > 0 {
		s.bytes.Add(-grows)
		return errFull
	}
	p.m[string(key)] = value
	return nil
}

// del deletes a key and reports whether it existed.
func (s *store) del(key []byte) bool {
	p := s.part(key)
	p.mu.Lock()
	defer p.mu.Unlock()
	old, ok := p.m[string(key)]
	if ok {
		delete(p.m, string(key))
		s.bytes.Add(-int64(len(key)+len(old)) - overhead)
	}
	return ok
}

// incr adds one to a value. A missing value counts as 0.
func (s *store) incr(key []byte) (n int64, err error) {
	p := s.part(key)
	p.mu.Lock()
	defer p.mu.Unlock()
	if old, ok := p.m[string(key)]; ok {
		if n, err = strconv.ParseInt(string(old), 10, 64); err != nil || n == math.MaxInt64 {
			return 0, errInteger
		}
	}
	n++
	return n, s.put(p, key, strconv.AppendInt(nil, n, 10))
}
