// SPDX-License-Identifier: MIT

//go:build race

package reactor

import (
	"testing"

	"github.com/ringside-io/ringside/internal/sys"
)

// TestRaceModelStopsBetweenAccesses stops a race model between two accesses that only the
// model's lock orders: the race detector must not report the model itself.
func TestRaceModelStopsBetweenAccesses(t *testing.T) {
	var s raceModel
	s.start()
	turns := [2]chan struct{}{make(chan struct{}), make(chan struct{})}
	accessOnce := func(turn chan struct{}) {
		s.access(make([]byte, 8), true, new(raceKey))
		sys.RaceBlind()
		close(turn)
		sys.RaceSee()
	}
	go accessOnce(turns[0])
	late := make(chan struct{})
	go func() {
		sys.RaceBlind()
		<-late
		sys.RaceSee()
		accessOnce(turns[1])
	}()
	sys.RaceBlind()
	<-turns[0]
	sys.RaceSee()
	s.stop()
	sys.RaceBlind()
	close(late)
	<-turns[1]
	sys.RaceSee()
}
