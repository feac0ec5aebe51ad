// SPDX-License-Identifier: MIT

package replica

import (
	"bufio"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"time"
)

// serveForward runs the statements of a forwarded connection. When the connection ends, its
// transaction is rolled back.
func (w *wire) serveForward(c net.Conn) {
	ctx, cancel := context.WithCancel(w.node.life.closing)
	defer cancel()
	requests := make(chan forwardRequest)
	w.over.Go(func() {
		defer cancel() // interrupts a running statement
		defer close(requests)
		for in := bufio.NewReaderSize(c, 64<<10); ; {
			var r forwardRequest
			if receive(in, &r) != nil {
				return
			}
			select {
			case requests <- r:
			case <-ctx.Done():
				return
			}
		}
	})
	first, ok := <-requests
	if !ok {
		return
	}
	s, err := w.node.forwardSession(ctx, first.Database)
	if send(c, forwardAnswer{Fault: packError(err)}) != nil || err != nil {
		s.close()
		return
	}
	defer s.close()
	idle := time.AfterFunc(time.Hour, func() { _ = c.Close() })
	defer idle.Stop()
	for r := range requests {
		idle.Stop()
		w.node.metrics.Forwarded.Add(1)
		answer := func(a forwardAnswer) error {
			// A node that does not read its answer must not keep the lock of its transaction.
			_ = c.SetWriteDeadline(time.Now().Add(time.Minute))
			return send(c, a)
		}
		if err := s.serve(ctx, r, answer); err != nil {
			return
		}
		if s.open() {
			idle.Reset(time.Duration(w.node.sessions.forwardIdle.Load()))
		}
	}
}

// forwardSession is a connection of the leader that another node uses.
type forwardSession struct {
	limits forwardLimits
	db     *sql.DB
	conn   *sql.Conn
	tx     *sql.Tx
}

func (n *Node) forwardSession(ctx context.Context, name string) (*forwardSession, error) {
	s := &forwardSession{limits: n.opts.forwards}
	if err := n.role.writable(); err != nil {
		return s, err
	}
	if err := checkName(name); err != nil {
		return s, err
	}
	s.db = sql.OpenDB(&connector{n: n, name: name})
	var err error
	s.conn, err = s.db.Conn(ctx)
	return s, err
}

func (s *forwardSession) close() {
	if s.tx != nil {
		_ = s.tx.Rollback()
	}
	if s.conn != nil {
		_ = s.conn.Close()
	}
	if s.db != nil {
		_ = s.db.Close()
	}
}

// open reports whether a transaction is open, which a statement may have begun.
func (s *forwardSession) open() bool {
	open := false
	_ = s.conn.Raw(func(c any) error {
		open = c.(*conn).open()
		return nil
	})
	return open
}

// guarded runs f, and turns a panic into an error: SQLite's driver panics for some statements, for example
// if the name of a column of the result is very long, and a statement must not end the leader.
func guarded(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: the driver of SQLite panicked: %v", ErrForward, p)
		}
	}()
	return f()
}

// serve answers a request. It returns an error if the connection can no longer be used.
func (s *forwardSession) serve(ctx context.Context, r forwardRequest, answer func(forwardAnswer) error) error {
	var a forwardAnswer
	var err error
	switch r.Op {
	case forwardBegin:
		s.tx, err = s.conn.BeginTx(ctx, &sql.TxOptions{ReadOnly: r.ReadOnly, Isolation: sql.IsolationLevel(r.Isolation)})
		if err != nil {
			s.tx = nil
		}
	case forwardCommit, forwardRollback:
		tx := s.tx
		s.tx = nil
		switch {
		case tx == nil:
			err = sql.ErrTxDone
		case r.Op == forwardCommit:
			err = tx.Commit()
		default:
			err = rollback(tx)
		}
	case forwardExec, forwardQuery:
		args := make([]any, len(r.Args))
		for i, v := range r.Args {
			if args[i], err = v.unpack(); err != nil {
				break
			}
			if v.Name != "" {
				args[i] = sql.Named(v.Name, args[i])
			}
		}
		switch {
		case err != nil:
		case r.Op == forwardExec:
			err = guarded(func() (err error) { a, err = s.exec(ctx, string(r.Query), args); return err })
		default:
			err = guarded(func() (err error) { a, err = s.query(ctx, string(r.Query), args, answer); return err })
		}
	default:
		err = fmt.Errorf("%w: unknown request %q", ErrForward, r.Op)
	}
	if errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) {
		return err
	}
	a.Fault = packError(err)
	return answer(a)
}

func (s *forwardSession) exec(ctx context.Context, query string, args []any) (a forwardAnswer, err error) {
	f := s.conn.ExecContext
	if s.tx != nil {
		f = s.tx.ExecContext
	}
	r, err := f(ctx, query, args...)
	if err != nil {
		return a, err
	}
	if a.LastID, err = r.LastInsertId(); err == nil {
		a.Changes, err = r.RowsAffected()
	}
	return a, err
}

func (s *forwardSession) query(ctx context.Context, query string, args []any, answer func(forwardAnswer) error) (a forwardAnswer, err error) {
	f := s.conn.QueryContext
	if s.tx != nil {
		f = s.tx.QueryContext
	}
	rows, err := f(ctx, query, args...)
	if err != nil {
		return a, err
	}
	defer rows.Close()
	types, err := rows.ColumnTypes()
	if err != nil {
		return a, err
	}
	for _, t := range types {
		a.Columns, a.Types = append(a.Columns, []byte(t.Name())), append(a.Types, t.DatabaseTypeName())
	}
	values, into := make([]any, len(types)), make([]any, len(types))
	for i := range values {
		into[i] = &values[i]
	}
	total, part := 0, 0
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return a, err
		}
		row := make([]forwardValue, len(values))
		before := part
		for i, v := range values {
			if row[i], err = packValue(v); err != nil {
				return a, err
			}
			part += len(row[i].Bytes) + 16
			values[i] = nil
		}
		if most := s.limits.statement; part-before > most {
			a.Rows = nil
			return a, fmt.Errorf("%w: a row of its result is larger than %d bytes: run it on the leader", ErrForward, most)
		}
		a.Rows = append(a.Rows, row)
		if part < forwardPart {
			continue
		}
		if total, part = total+part, 0; total > s.limits.rows {
			a.Rows = nil
			return a, fmt.Errorf("%w: its result is larger than %d bytes: run it on the leader", ErrForward, s.limits.rows)
		}
		a.More = true
		if err := answer(a); err != nil {
			return a, err
		}
		a = forwardAnswer{}
	}
	return a, errors.Join(rows.Err(), rows.Close())
}

// retryable reports whether an operation had no effect and may succeed with the next leader.
func retryable(err error) bool {
	if errors.Is(err, ErrUncertain) {
		return false
	}
	_, elects := errors.AsType[*NotLeaderError](err)
	return elects || errors.Is(err, ErrConflict) || errors.Is(err, errRecovering)
}

// Do runs a transaction on the leader, from any node, and commits it if fn returns nil. On
// another node the statements are forwarded to the leader, even without Options.Forward, with
// its limits. Do runs fn again after an election, when the connection to the leader was lost
// before the commit, and after a conflict with a transaction that was committed meanwhile;
// never after ErrUncertain. It repeats until the context is done.
func (n *Node) Do(ctx context.Context, name string, fn func(*sql.Tx) error) error {
	if err := checkName(name); err != nil {
		return err
	}
	db := sql.OpenDB(&connector{n: n, name: name, forward: true})
	defer db.Close()
	db.SetMaxOpenConns(1)
	for {
		err := do(ctx, db, fn)
		switch {
		case err == nil, !retryable(err):
			return err
		case n.life.closing.Err() != nil:
			return net.ErrClosed
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-n.life.closing.Done():
			return net.ErrClosed
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func do(ctx context.Context, db *sql.DB, fn func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // if fn panics or ends the goroutine; otherwise it does nothing
	if err := fn(tx); err != nil {
		return errors.Join(err, rollback(tx))
	}
	return tx.Commit()
}

func rollback(tx *sql.Tx) error {
	err := tx.Rollback()
	if errors.Is(err, sql.ErrTxDone) || errors.Is(err, driver.ErrBadConn) {
		return nil
	}
	if _, ok := errors.AsType[*NotLeaderError](err); ok {
		return nil // it was rolled back when the leader was deposed
	}
	return err
}
