// SPDX-License-Identifier: MIT

//go:build !linux

package fileserver

import "github.com/ringside-io/ringside/ufile"

// keepsOpen reports whether requests can share an open file.
const keepsOpen = false

// stateOf tells nothing: see keepsOpen.
func stateOf(*ufile.File) (fileState, bool) { return fileState{}, false }

// noteSmall is for sendRange.
func noteSmall() {}

// sendRange leaves it to others.
func (c *conn) sendRange(*fileRange) (sent int64, handled bool, err error) {
	return 0, false, nil
}
