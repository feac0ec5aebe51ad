// SPDX-License-Identifier: MIT

// Example starts three nodes, writes, kills the leader, continues, and compares the databases.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/ringside-io/ringside/replica"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

const tenants = 8

func run() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "ringside-replica-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	peers := make(map[string]string)
	for _, id := range []string{"a", "b", "c"} {
		if peers[id], err = address(); err != nil {
			return err
		}
	}
	nodes := make(map[string]*replica.Node)
	for id, addr := range peers {
		n, err := replica.Open(replica.Options{ID: id, Dir: filepath.Join(dir, id), Listen: addr, Peers: peers, Election: 500 * time.Millisecond,
			Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))})
		if err != nil {
			return err
		}
		defer n.Close()
		nodes[id] = n
	}
	first, err := leader(ctx, nodes)
	if err != nil {
		return err
	}
	fmt.Printf("node %s leads\n", first.ID())
	acknowledged := 0
	write := func(n *replica.Node, count int) error {
		for i := range count {
			name := fmt.Sprintf("tenants/%d.db", i%tenants)
			err := n.Do(ctx, name, func(tx *sql.Tx) error {
				if _, err := tx.Exec("CREATE TABLE IF NOT EXISTS event(at TEXT, what TEXT)"); err != nil {
					return err
				}
				_, err := tx.Exec("INSERT INTO event VALUES(datetime(), ?)", fmt.Sprint(i))
				return err
			})
			if err != nil {
				return err
			}
			acknowledged++
		}
		return nil
	}
	if err := write(first, 200); err != nil {
		return err
	}
	fmt.Printf("%d commits in %d databases are acknowledged\n", acknowledged, tenants)

	fmt.Printf("node %s is stopped\n", first.ID())
	begin := time.Now()
	delete(nodes, first.ID())
	if err := first.Close(); err != nil {
		return err
	}
	second, err := leader(ctx, nodes)
	if err != nil {
		return err
	}
	if err := write(second, 1); err != nil {
		return err
	}
	fmt.Printf("node %s leads and has committed again after %v\n", second.ID(), time.Since(begin).Round(time.Millisecond))
	if err := write(second, 199); err != nil {
		return err
	}

	found := 0
	for i := range tenants {
		db, err := second.Open(fmt.Sprintf("tenants/%d.db", i))
		if err != nil {
			return err
		}
		var n int
		if err := db.QueryRowContext(ctx, "SELECT count(*) FROM event").Scan(&n); err != nil {
			return errors.Join(err, db.Close())
		}
		found += n
		if err := db.Close(); err != nil {
			return err
		}
	}
	if found != acknowledged {
		return fmt.Errorf("%d commits were acknowledged, and %d are there", acknowledged, found)
	}
	fmt.Printf("all %d acknowledged commits are there: nothing was lost\n", found)
	return nil
}

// address returns a free address: members must know each other's address before they listen.
func address() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// leader waits for a leader and returns its node.
func leader(ctx context.Context, nodes map[string]*replica.Node) (*replica.Node, error) {
	for ctx.Err() == nil {
		for _, n := range nodes {
			if n.Status().Leads {
				return n, nil
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil, ctx.Err()
}
