// SPDX-License-Identifier: MIT

package stress

import (
	"maps"
	"slices"
)

// Settings of a [KernelEnv] that runs beside others.
const (
	// Beside means that the process does other work, too, so that the environment does
	// not count leaked descriptors and goroutines.
	Beside = "beside"
	// NoRings is for where io_uring cannot be used: there is no engine.
	NoRings = "no-rings"
)

// rowVerbs are the kinds of steps of each row.
var rowVerbs = map[string][]*verb{
	"files": slices.Concat(fileVerbs, rawVerbs, pipeVerbs), "sockets": connVerbs, "watch": watchVerbs,
}

// Rows returns the valid arguments of Only.
func Rows() []string { return slices.Sorted(maps.Keys(rowVerbs)) }

// Only leaves out, by the setting "without-NAME" of each, the kinds of steps that
// do not belong to a row: files, which includes the engine; sockets; or watch. With
// [NoRings] it also leaves out steps that need io_uring.
func (s Settings) Only(row string) {
	leave := []*verb{}
	for _, name := range Rows() {
		if name != row {
			leave = append(leave, rowVerbs[name]...)
		}
	}
	if s.Has(NoRings) {
		leave = slices.Concat(leave, rawVerbs, pipeVerbs)
		s["file-mode"], s["plain-sockets"], s["epoll"] = float64(s.Int("file-mode")&^1), 1, 1
	}
	for _, v := range leave {
		s["without-"+v.name] = 1
	}
}
