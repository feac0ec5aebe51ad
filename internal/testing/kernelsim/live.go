// SPDX-License-Identifier: MIT

package kernelsim

import "slices"

// live is the operations that are alive, in no order, and by their user data.
type live struct {
	all    []*op
	byData map[uint64][]*op
}

func (l *live) add(o *op) {
	if l.byData == nil {
		l.byData = make(map[uint64][]*op)
	}
	o.place = len(l.all)
	l.all = append(l.all, o)
	l.byData[o.sqe.Raw().UserData] = append(l.byData[o.sqe.Raw().UserData], o)
}

func (l *live) remove(o *op) {
	last := len(l.all) - 1
	l.all[o.place] = l.all[last]
	l.all[o.place].place = o.place
	l.all[last] = nil
	l.all = l.all[:last]
	left := slices.DeleteFunc(l.byData[o.sqe.Raw().UserData], func(x *op) bool { return x == o })
	if l.byData[o.sqe.Raw().UserData] = left; len(left) == 0 {
		delete(l.byData, o.sqe.Raw().UserData)
	}
}
