// SPDX-License-Identifier: MIT

//go:build !race

package reactor

// raceModel does nothing without the race detector.
type raceModel struct{}

type raceKey struct{}

func (*raceModel) start()      {}
func (*raceModel) stop()       {}
func (*loop) raceTake(*entry)  {}
func (v *entry) raceGiveBack() { _ = v.key }
