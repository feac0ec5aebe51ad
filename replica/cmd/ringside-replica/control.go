// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/replica"
)

// controlSocket is the Unix socket in the directory of a running node. Users with write
// permission for the directory may use it.
const controlSocket = "control"

// request is a command, as JSON; answer is the node's answer. A connection has one of each.
// If the connection ends before the answer, the command is interrupted.
type request struct {
	Command string   `json:"command"`
	Args    []string `json:"args"`
	Offline bool     `json:"offline,omitempty"` // of add: the node need not answer

	PageSize int           `json:"pageSize,omitempty"` // of create
	Stale    time.Duration `json:"stale,omitempty"`    // of query: negative reads on the leader
	Before   time.Time     `json:"before,omitzero"`    // of restore
	Missing  bool          `json:"missing,omitempty"`  // of restore
}

type answer struct {
	Error   string          `json:"error,omitempty"`
	Status  *replica.Status `json:"status,omitempty"`
	Backup  *backupState    `json:"backup,omitempty"`
	Names   []string        `json:"names,omitempty"`
	Changes int64           `json:"changes,omitempty"`
	Columns []string        `json:"columns,omitempty"`
	Rows    [][]any         `json:"rows,omitempty"`
}

// listenControl listens on a socket. The log locks the node's directory, so an existing socket
// is left from a process that was killed.
func listenControl(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	short, release, err := shortPath(path)
	if err != nil {
		return nil, err
	}
	defer release()
	l, err := net.Listen("unix", short)
	if err != nil {
		return nil, err
	}
	if short != path { // it will not be valid when the listener is closed
		l.(*net.UnixListener).SetUnlinkOnClose(false)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// shortPath returns a path of a socket that the kernel accepts, which is valid until release is
// called: the address of a Unix socket has 108 bytes, and the last one is 0.
func shortPath(path string) (short string, release func(), err error) {
	if len(path) < 108 {
		return path, func() {}, nil
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)), func() { dir.Close() }, nil
}

// serveControl executes commands until the returned function is called, which interrupts
// running commands and waits for them.
func serveControl(l net.Listener, n *service) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var over sync.WaitGroup
	over.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			over.Go(func() { serve(ctx, c, n) })
		}
	})
	return func() {
		l.Close()
		cancel()
		over.Wait()
	}
}

func serve(ctx context.Context, c net.Conn, n *service) {
	defer c.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	var r request
	in := json.NewDecoder(c)
	if in.Decode(&r) != nil {
		return
	}
	go func() {
		_ = in.Decode(new(request)) // it ends with the connection
		cancel()
	}()
	var a answer
	if err := obey(ctx, n, r, &a); err != nil {
		a.Error = err.Error()
	}
	_ = json.NewEncoder(c).Encode(a)
}

func obey(ctx context.Context, n *service, r request, a *answer) error {
	switch {
	case r.Command == "status":
		s := n.Status()
		a.Status, a.Backup = &s, n.backupState()
		return nil
	case r.Command == "verify":
		return n.Verify(ctx)
	case r.Command == "add" && len(r.Args) == 2:
		if !r.Offline {
			if err := reach(ctx, n.Node, r.Args[0], r.Args[1]); err != nil {
				return err
			}
		}
		return n.AddMember(ctx, r.Args[0], r.Args[1])
	case r.Command == "remove" && len(r.Args) == 1:
		return n.RemoveMember(ctx, r.Args[0])
	case r.Command == "transfer" && len(r.Args) < 2:
		return n.Transfer(ctx, append(r.Args, "")[0])
	case r.Command == "backup" && len(r.Args) == 1:
		return n.Backup(ctx, r.Args[0])
	case r.Command == "restore" && len(r.Args) == 1:
		return n.restore(ctx, r)
	case r.Command == "list" && len(r.Args) == 0:
		a.Names = n.List()
		return nil
	case r.Command == "create" && len(r.Args) == 1:
		return n.Create(ctx, r.Args[0], replica.CreateOptions{PageSize: r.PageSize})
	case r.Command == "delete" && len(r.Args) == 1:
		return n.Delete(ctx, r.Args[0])
	case r.Command == "import" && len(r.Args) == 2:
		return n.Import(ctx, r.Args[0], r.Args[1])
	case r.Command == "exec" && len(r.Args) == 2:
		return execSQL(ctx, n.Node, r.Args[0], r.Args[1], a)
	case r.Command == "query" && len(r.Args) == 2:
		return querySQL(ctx, n.Node, r, a)
	}
	return fmt.Errorf("the node does not know %q with %d arguments", r.Command, len(r.Args))
}

// existing opens a database that exists: Open would create it.
func existing(n *replica.Node, name string, o ...replica.OpenOption) (*sql.DB, error) {
	if !slices.Contains(n.List(), name) {
		return nil, fmt.Errorf("there is no database %q on this node: see list and create", name)
	}
	return n.Open(name, o...)
}

func execSQL(ctx context.Context, n *replica.Node, name, query string, a *answer) error {
	db, err := existing(n, name)
	if err != nil {
		return err
	}
	defer db.Close()
	r, err := db.ExecContext(ctx, query)
	if err != nil {
		return err
	}
	a.Changes, err = r.RowsAffected()
	return err
}

// queryBytes bounds the result of a query.
const queryBytes = 64 << 20

func querySQL(ctx context.Context, n *replica.Node, r request, a *answer) error {
	var o []replica.OpenOption
	if r.Stale >= 0 {
		o = append(o, replica.Stale(r.Stale))
	}
	db, err := existing(n, r.Args[0], o...)
	if err != nil {
		return err
	}
	defer db.Close()
	rows, err := db.QueryContext(ctx, r.Args[1])
	if err != nil {
		return err
	}
	defer rows.Close()
	if a.Columns, err = rows.Columns(); err != nil {
		return err
	}
	size := 0
	for rows.Next() {
		row, into := make([]any, len(a.Columns)), make([]any, len(a.Columns))
		for i := range row {
			into[i] = &row[i]
		}
		if err := rows.Scan(into...); err != nil {
			return err
		}
		for i, v := range row {
			size += 16
			switch v := v.(type) {
			case []byte:
				row[i] = fmt.Sprintf("x'%x'", v)
				size += 2 * len(v)
			case string:
				size += len(v)
			}
		}
		if a.Rows = append(a.Rows, row); size > queryBytes {
			return fmt.Errorf("the result is larger than %d bytes: use LIMIT", queryBytes)
		}
	}
	return errors.Join(rows.Err(), rows.Close())
}

// reach returns an error if a node that is to be added does not answer at its address. AddMember would wait for
// it, and does not return the reason before it is interrupted.
func reach(ctx context.Context, n *replica.Node, id, address string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	found, err := n.Meet(ctx, address)
	switch {
	case err != nil:
		return fmt.Errorf("nothing was changed, because node %q does not answer at %s: start it with ringside-replica run, without -peers, or add it with -offline before it runs: %w", id, address, err)
	case found != id:
		return fmt.Errorf("nothing was changed, because the node at %s is %q and not %q", address, found, id)
	}
	return nil
}

// askControl sends a request to the node that listens on a socket.
func askControl(ctx context.Context, path string, r request) (*answer, error) {
	var d net.Dialer
	var c net.Conn
	short, release, err := shortPath(path)
	if err == nil {
		c, err = d.DialContext(ctx, "unix", short)
		release()
	}
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("no node runs there: start it with ringside-replica run: %w", err)
	}
	if err != nil {
		return nil, err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	if err := json.NewEncoder(c).Encode(r); err != nil {
		return nil, err
	}
	var a answer
	in := json.NewDecoder(c)
	in.UseNumber()
	if err := in.Decode(&a); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("the node did not answer: %w", err)
	}
	if a.Error != "" {
		return nil, errors.New(a.Error)
	}
	return &a, nil
}
