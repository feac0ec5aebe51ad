// SPDX-License-Identifier: MIT

//go:build !race

package replica

import (
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// TestAddresses: all members get other addresses. Options.Addresses tells them, and the leader records them.
// The race detector would report package raft: it reads the ID of a member without the lock under which it changes the
// member's address (updateLastAppended in its replication.go). "make adapters" has the test without it.
//
// Promise: replica/addresses
func TestAddresses(t *testing.T) {
	c := newCluster(t, 3, Options{Election: 2 * time.Second})
	execAll(t, open(t, c.leader(), "db"), "CREATE TABLE t(x)")
	c.judge()
	old := make(map[string]string)
	for id := range c.addrs {
		old[id] = c.addrs[id]
		c.stop(id)
	}
	for i, a := range ringtest.FreeAddresses(t, ringtest.OwnHost(), 3) {
		c.addrs[string(rune('a'+i))] = a
	}
	for id := range c.addrs {
		o := c.options(id)
		o.Addresses, o.Peers = c.addrs, old // as it was started before
		c.open(o)
	}
	execAll(t, open(t, c.leader(), "db"), "INSERT INTO t VALUES(1)")
	recorded := func() bool {
		for _, n := range c.all() {
			for _, m := range n.Status().Members {
				if m.Address != c.addrs[m.ID] {
					return false
				}
			}
		}
		return true
	}
	until(t, "the new addresses are recorded", recorded)
	c.judge()
	for id := range c.addrs { // without the option
		c.stop(id)
	}
	for id := range c.addrs {
		c.start(id)
	}
	execAll(t, open(t, c.leader(), "db"), "INSERT INTO t VALUES(2)")
	c.judge()
}
