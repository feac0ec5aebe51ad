// SPDX-License-Identifier: MIT

//go:build race

package reactor

import (
	"testing"

	"github.com/ringside-io/ringside/internal/sys"
)

// TestShadowStopsBesideTouches stops a shadow after and before others use it that
// nothing orders but its lock: the race detector must not report the shadow itself.
func TestShadowStopsBesideTouches(t *testing.T) {
	var s shadow
	s.start()
	turns := [2]chan struct{}{make(chan struct{}), make(chan struct{})}
	touchOnce := func(turn chan struct{}) {
		s.touch(make([]byte, 8), true, new(shadowKey))
		sys.RaceBlind()
		close(turn)
		sys.RaceSee()
	}
	go touchOnce(turns[0])
	late := make(chan struct{})
	go func() {
		sys.RaceBlind()
		<-late
		sys.RaceSee()
		touchOnce(turns[1])
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
