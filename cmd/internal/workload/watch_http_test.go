// SPDX-License-Identifier: MIT

package workload

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/cmd/internal/ab"
)

func TestHTTPNeedsAnAnswer(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the server needs epoll")
	}
	j := Job{Suite: "watch", Workload: "http", Engine: "epoll", HTTP: &HTTP{Ask: ab.Job{Requests: 100, Connections: 1}}}
	for _, bad := range []HTTP{{}, {Program: []string{"/bin/false"}}, {Program: []string{"/bin/false"}, Own: true}} {
		j.HTTP = &bad
		if s, err := j.Run(t.Context()); err == nil {
			t.Errorf("%+v: %+v", bad, s)
		}
	}
	j.Engine = "sun"
	if _, err := j.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "sun") {
		t.Errorf("unknown engine: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	j.Engine, j.HTTP = "epoll", &HTTP{Program: []string{"/bin/sleep"}, Own: true}
	if _, err := j.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v", err)
	}
	if _, err := AskJob(ab.Job{Addr: "127.0.0.1:1", Requests: 100, Connections: 1}).Run(t.Context()); err == nil {
		t.Error("no server answers")
	}
}
