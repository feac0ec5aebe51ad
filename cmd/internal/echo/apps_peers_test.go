// SPDX-License-Identifier: MIT

//go:build peers

package echo

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/loadgen"
	"github.com/ringside-io/ringside/cmd/internal/peers/apps"
	"github.com/ringside-io/ringside/cmd/internal/peers/generator"
)

// TestApps runs each application on each engine that has a net.Listener and a net.PacketConn.
func TestApps(t *testing.T) {
	r := runner(t)
	const window = 300 * time.Millisecond
	redis := generator.Job{Client: generator.NameRedis, Connections: 3, Pipeline: 2, Measure: window}
	var err error
	if redis.Path, err = generator.Find(redis.Client); err != nil {
		t.Logf("redis is not tried: %v", err)
	}
	for _, engine := range []string{NameStd, NameConn, NamePlain} {
		web := loadgen.Job{HTTP: true, Connections: 3, Warm: time.Millisecond, Measure: window}
		if s, err := r.Round(t.Context(), Setup{Engine: engine, App: apps.FastHTTP, HTTP: 50}, web); err != nil || s.Ops == 0 || s.Answer < 50 {
			t.Errorf("%s, fasthttp: %+v, %v", engine, s, err)
		}
		for _, tc := range []struct {
			setup  Setup
			driver interface {
				Drive(ctx context.Context, addr string) (loadgen.Result, error)
			}
		}{
			{Setup{App: apps.GRPC}, apps.Job{App: apps.GRPC, Connections: 2, Calls: 3, Warm: time.Millisecond, Measure: window}},
			{Setup{App: apps.QUIC, Network: "udp"}, apps.Job{App: apps.QUIC, Connections: 2, Calls: 2, Size: 5000, Measure: window}},
			{Setup{App: apps.Redis, HTTP: 50}, redis},
		} {
			if tc.driver == redis && redis.Path == "" {
				continue
			}
			tc.setup.Engine = engine
			s, err := r.RoundWith(t.Context(), tc.setup, func(addr string) (loadgen.Result, error) { return tc.driver.Drive(t.Context(), addr) })
			if err != nil || s.Ops == 0 || s.CPU <= 0 || s.P50 <= 0 || s.P50 > s.P99 || s.P99 > s.Max {
				t.Errorf("%s, %s: %+v, %v", engine, tc.setup.App, s, err)
			}
		}
	}
}

// TestAppsEnd: calls end with their context, and a call without a server is an error.
func TestAppsEnd(t *testing.T) {
	r := runner(t)
	for _, app := range []string{apps.GRPC, apps.QUIC} {
		setup := Setup{Engine: NameStd, App: app}
		if app == apps.QUIC {
			setup.Network = "udp"
		}
		_, err := r.RoundWith(t.Context(), setup, func(addr string) (loadgen.Result, error) {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			j := apps.Job{App: app, Connections: 1, Size: 1 << 20, Measure: time.Hour}
			return j.Drive(ctx, addr)
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", app, err)
		}
	}
	j := apps.Job{App: apps.GRPC, Connections: 1, Measure: time.Hour}
	if _, err := j.Drive(t.Context(), "127.0.0.1:1"); err == nil {
		t.Error("a call without a server succeeded")
	}
}
