// SPDX-License-Identifier: MIT

//go:build peers

package sqlitebench

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strings"
)

// dbConn is a connection of a library that only has a driver for database/sql.
type dbConn struct{ c driver.Conn }

func openDriver(d driver.Driver, name string) (Conn, error) {
	c, err := d.Open(name)
	if err != nil {
		return nil, err
	}
	return dbConn{c}, nil
}

func (c dbConn) Exec(sql string) error {
	e, ok := c.c.(driver.ExecerContext)
	if !ok {
		return fmt.Errorf("%T cannot execute: %w", c.c, errors.ErrUnsupported)
	}
	_, err := e.ExecContext(context.Background(), sql, nil)
	return err
}

func (c dbConn) Close() error { return c.c.Close() }

func (c dbConn) Prepare(sql string) (Stmt, error) {
	s, err := c.c.Prepare(sql)
	if err != nil {
		return nil, err
	}
	exec, ok1 := s.(driver.StmtExecContext)
	query, ok2 := s.(driver.StmtQueryContext)
	if !ok1 || !ok2 {
		return nil, errors.Join(fmt.Errorf("%T: %w", s, errors.ErrUnsupported), s.Close())
	}
	d := &dbStmt{Stmt: s, exec: exec, query: query}
	if strings.Contains(sql, "?1") { // Not every driver reports the number of parameters before it runs a statement.
		d.args = make([]driver.NamedValue, 1)
	}
	return d, nil
}

type dbStmt struct {
	driver.Stmt
	exec  driver.StmtExecContext
	query driver.StmtQueryContext
	args  []driver.NamedValue
}

func (d *dbStmt) bind(arg int64) []driver.NamedValue {
	for i := range d.args {
		d.args[i] = driver.NamedValue{Ordinal: i + 1, Value: arg}
	}
	return d.args
}

func (d *dbStmt) Exec(arg int64) error {
	_, err := d.exec.ExecContext(context.Background(), d.bind(arg))
	return err
}

func (d *dbStmt) Int(arg int64) (v int64, err error) {
	rows, err := d.query.QueryContext(context.Background(), d.bind(arg))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	row := make([]driver.Value, len(rows.Columns()))
	if err := rows.Next(row); errors.Is(err, io.EOF) {
		return 0, errNoRow
	} else if err != nil {
		return 0, err
	}
	v, ok := row[0].(int64)
	if !ok {
		return 0, fmt.Errorf("%T instead of an integer", row[0])
	}
	return v, nil
}
