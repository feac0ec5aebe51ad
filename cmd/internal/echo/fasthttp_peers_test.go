// SPDX-License-Identifier: MIT

//go:build peers

package echo

import (
	"testing"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/loadgen"
)

// TestFastHTTP runs fasthttp on each engine that has a net.Listener.
func TestFastHTTP(t *testing.T) {
	r := runner(t)
	for _, engine := range []string{NameStd, NameConn, NamePlain} {
		web := loadgen.Job{HTTP: true, Connections: 3, Warm: time.Millisecond, Measure: 300 * time.Millisecond}
		if s, err := r.Round(t.Context(), Setup{Engine: engine, Fast: true, HTTP: 50}, web); err != nil || s.Ops == 0 || s.Answer < 50 {
			t.Errorf("%s: %+v, %v", engine, s, err)
		}
	}
}
