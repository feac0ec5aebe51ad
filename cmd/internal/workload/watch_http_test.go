// SPDX-License-Identifier: MIT

package workload

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/cmd/internal/peers/generator"
)

func TestHTTPNeedsAnAnswer(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the server needs epoll")
	}
	j := Job{Suite: "watch", Workload: "http", Engine: "epoll", Work: &HTTP{}}
	for _, bad := range []generator.Job{{}, {Client: generator.NameAB, Path: "/bin/false"}, {Client: generator.NameAB, Path: "/bin/true", Requests: 100}} {
		of[HTTP](j).Ask = bad
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
	j.Engine, j.Work = "epoll", &HTTP{Ask: generator.Job{Client: generator.NameAB, Path: "/bin/sleep"}}
	if _, err := j.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v", err)
	}
}
