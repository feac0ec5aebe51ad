// SPDX-License-Identifier: MIT

package stress

import "slices"

// reading holds the start times of the reads in progress, in order. The first one is in
// progress; some of the others may have ended.
type reading struct {
	begins []uint64
	ended  []bool
	gone   int // of begins, at the front
}

// add adds a read, which begins later than all others.
func (r *reading) add(begin uint64) {
	r.begins, r.ended = append(r.begins, begin), append(r.ended, false)
}

// remove ends a read. It does nothing for a read that has ended already.
func (r *reading) remove(begin uint64) {
	i, found := slices.BinarySearch(r.begins, begin)
	if !found {
		return
	}
	r.ended[i] = true
	for r.gone < len(r.begins) && r.ended[r.gone] {
		r.gone++
	}
	if 2*r.gone > len(r.begins) {
		n := copy(r.begins, r.begins[r.gone:])
		copy(r.ended, r.ended[r.gone:])
		r.begins, r.ended, r.gone = r.begins[:n], r.ended[:n], 0
	}
}

// oldest returns when the oldest read began, or now if there is none.
func (r *reading) oldest(now uint64) uint64 {
	if r.gone == len(r.begins) {
		return now
	}
	return r.begins[r.gone]
}
