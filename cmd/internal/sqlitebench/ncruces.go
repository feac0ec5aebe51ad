// SPDX-License-Identifier: MIT

package sqlitebench

import (
	"errors"

	"github.com/ncruces/go-sqlite3"
)

// ncConn is a connection of the library for which the VFS is written.
type ncConn struct{ c *sqlite3.Conn }

func openNcruces(name string) (Conn, error) {
	c, err := sqlite3.Open(name)
	if err != nil {
		return nil, err
	}
	return ncConn{c}, nil
}

func (n ncConn) Exec(sql string) error { return n.c.Exec(sql) }

func (n ncConn) Close() error { return n.c.Close() }

func (n ncConn) Prepare(sql string) (Stmt, error) {
	s, _, err := n.c.Prepare(sql)
	if err != nil {
		return nil, err
	}
	return ncStmt{s}, nil
}

type ncStmt struct{ s *sqlite3.Stmt }

// bind sets the parameter, if the statement has one.
func (n ncStmt) bind(arg int64) error {
	if n.s.BindCount() == 0 {
		return nil
	}
	return n.s.BindInt64(1, arg)
}

func (n ncStmt) Exec(arg int64) error {
	if err := n.bind(arg); err != nil {
		return err
	}
	return n.s.Exec()
}

func (n ncStmt) Int(arg int64) (v int64, err error) {
	if err := n.bind(arg); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, n.s.Reset()) }()
	if !n.s.Step() {
		return 0, errors.Join(n.s.Err(), errNoRow)
	}
	return n.s.ColumnInt64(0), nil
}

func (n ncStmt) Close() error { return n.s.Close() }
