// SPDX-License-Identifier: MIT

//go:build unix

package main

import (
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// SIGINT and SIGTERM end the service in order, also with open connections and
// databases; acknowledged commits are found afterwards.
// Promise: examples/servers-end-code
func TestSignals(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			dir := t.TempDir()
			p, err := start(t.Context(), config{dir: dir, vfs: "ringside-log", open: 8})
			if err != nil {
				t.Fatal(err)
			}
			idle, k := &client{addr: p.addr}, &client{addr: p.addr}
			defer idle.close()
			defer k.close()
			want(t, idle, "POST", "/tenants/a/items", "idle", 201, "")
			want(t, k, "POST", "/tenants/b/items", "done", 201, "")
			begin := time.Now()
			if err := p.cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			if err := p.cmd.Wait(); err != nil {
				t.Errorf("%v: %s", err, p.cmd.Stderr)
			}
			_ = p.in.Close()
			took := time.Since(begin)
			t.Logf("ended in %v", took)
			if took > ringtest.Patience {
				t.Errorf("took %v", took)
			}
			again, _ := serve(t, config{dir: dir})
			want(t, again, "GET", "/tenants/a/items/1", "", 200, "idle")
			want(t, again, "GET", "/tenants/b/items/1", "", 200, "done")
		})
	}
}
