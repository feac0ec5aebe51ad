// SPDX-License-Identifier: MIT

//go:build !linux

package fileserver

import "github.com/ringside-io/ringside/ufile"

// keepsOpen reports whether requests can share an open file.
const keepsOpen = false

// stateOf returns false: see keepsOpen.
func stateOf(*ufile.File) (fileState, bool) { return fileState{}, false }

// noteSmall does nothing here: sendRange does not use sendfile.
func noteSmall() {}

// sendRange does nothing: the caller copies the bytes.
func (c *conn) sendRange(*fileRange) (sent int64, handled bool, err error) {
	return 0, false, nil
}
