// SPDX-License-Identifier: MIT

//go:build !race

package reactor

// shadow does nothing without the race detector; see shadow_race.go.
type shadow struct{}

type shadowKey struct{}

func (*shadow) start()         {}
func (*shadow) stop()          {}
func (*loop) took(*entry)      {}
func (v *entry) gave()         { _ = v.key }
func (*store) tookBack(uint16) {}
func (s *store) gave()         { _ = s.key }
