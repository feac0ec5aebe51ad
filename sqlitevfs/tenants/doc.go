// SPDX-License-Identifier: MIT

// Package tenants keeps the SQLite databases of many tenants: one file each, opened when it is
// used, and closed when it is idle or others need its room.
//
//	pool, err := tenants.Open(tenants.Options{Dir: "data"})
//	err = pool.Create(ctx, "alice", func(c *tenants.Conn) error {
//		s, err := c.Stmt("INSERT INTO items(body) VALUES(?)")
//		...
//	})
//
// # One connection
//
// A tenant has one connection while its database is awake. Uses of a tenant run one after the
// other, in their order; those of different tenants run at the same time. The connection belongs
// to one tenant from its opening to its closing, so nothing can get from one tenant to another: no
// temporary table, pragma, statement or page.
//
// The connection locks its database (PRAGMA locking_mode=exclusive). The WAL's index is then in
// memory and the WAL is made by the first write, so waking makes no file, and transactions take no
// locks. Other programs get "database is locked" until the database is closed. [Options].Shared
// lets them in, for twice the time of a wake-up.
//
// # Bounds
//
// The driver has SQLite's memory, page caches among it, outside of the Go heap: GOMEMLIMIT does
// not count it, and it never shrinks while a connection is open. The pool counts it. A connection
// in use counts as much as it may take, Options.TenantMemory, which the driver enforces; an idle
// one counts what it has taken. Their sum never exceeds Options.Memory. The least recently used
// idle database is closed when another one needs the room, or one of the connections that
// Options.MaxOpen and Options.Descriptors allow. If no database is idle, a use waits. A few
// connections are kept free in a large pool, so that a wake-up need not wait for another database
// to be closed.
//
// # Who waits for whom
//
// Uses that wait for room get it in the order in which they came. The tenant that was used has its
// next turn behind them. So a hot tenant has one connection and no more turns than others, and a
// database that hangs delays its own tenant only, as long as there is room for others. A database
// is opened once for all uses that wait for it, and they get the error if that fails. As many
// databases are opened at a time as there are processors, and one more for each that takes longer
// than 2 ms, which waits for the disk.
package tenants
