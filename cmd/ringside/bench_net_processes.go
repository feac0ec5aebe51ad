// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"encoding/json"

	"github.com/ringside-io/ringside/cmd/internal/echo"
	"github.com/ringside-io/ringside/cmd/internal/loadgen"
	"github.com/ringside-io/ringside/cmd/internal/peers/liburing"
	"github.com/ringside-io/ringside/cmd/internal/peers/webclient"
	"github.com/ringside-io/ringside/cmd/internal/suite"
)

// netProcesses runs servers and load as processes of this program, by its path.
type netProcesses string

// runner starts the peer for the engine in C, and this program for all others.
func (program netProcesses) runner(peer suite.NetPeer) echo.Runner {
	return echo.Runner{
		Load: []string{string(program), echoLoadName},
		Server: func(s echo.Setup) []string {
			if s.Engine == liburing.Name {
				return peer.Command()
			}
			// Strings and numbers, of which there can be no error.
			setup, _ := json.Marshal(s)
			return []string{string(program), echoServerName, string(setup)}
		},
	}
}

func (program netProcesses) round(ctx context.Context, s echo.Setup, peer suite.NetPeer, job loadgen.Job) (echo.Sample, error) {
	return program.runner(peer).Round(ctx, s, job)
}

func (program netProcesses) client(ctx context.Context, s echo.Setup, job webclient.Job) (echo.Sample, error) {
	return program.runner(nil).RoundWith(ctx, s, func(addr string) (loadgen.Result, error) {
		job.Addr = addr
		return job.Run(ctx)
	})
}

func (program netProcesses) idle(ctx context.Context, s echo.Setup, peer suite.NetPeer, job echo.IdleJob) (echo.IdleSample, error) {
	return program.runner(peer).Idle(ctx, s, job)
}
