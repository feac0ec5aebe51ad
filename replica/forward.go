// SPDX-License-Identifier: MIT

package replica

import (
	"bufio"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ncruces/go-sqlite3"
)

// A forwarded connection runs its statements on a connection of the leader, one message for
// each, and gets results and errors back. Its transactions run on the leader and hold the
// database's write lock there from their beginning to their end.

// The limits of forwarding.
const (
	// defaultForwardIdle is how long the leader keeps a forwarded transaction that sends no
	// statement. It is then rolled back.
	defaultForwardIdle = 10 * time.Second
	// forwardRows bounds the size of a statement's result, which the forwarding node
	// keeps in memory.
	forwardRows = 64 << 20
	// forwardPart is the size from which a result is continued in another message.
	forwardPart = 1 << 20
	// forwardStatement bounds a statement with its arguments, and a row of a result.
	forwardStatement = 10 << 20
)

// forwardLimits are the limits of a node in bytes.
type forwardLimits struct{ statement, rows int }

// ErrForward is returned for statements that cannot be forwarded: the statement, its arguments or
// its result are too large (see Options.Forward), or an argument has a type that database/sql does
// not pass to drivers. If the result was too large, the statement was executed: outside a
// transaction, a query that writes was committed.
var ErrForward = errors.New("replica: the statement cannot be forwarded")

const (
	forwardExec     = "exec"
	forwardQuery    = "query"
	forwardBegin    = "begin"
	forwardCommit   = "commit"
	forwardRollback = "rollback"
)

// forwardRequest is a statement, or the begin or end of a transaction. The first one of a
// connection names the database and nothing else. JSON preserves bytes; it would replace parts of a
// string that are not UTF-8, and make others several times as long.
type forwardRequest struct {
	Op        string         `json:"op,omitempty"`
	Database  string         `json:"database,omitempty"`
	Query     []byte         `json:"query,omitempty"`
	Args      []forwardValue `json:"args,omitempty"`
	ReadOnly  bool           `json:"readOnly,omitempty"`
	Isolation int            `json:"isolation,omitempty"`
}

// forwardAnswer answers a request. A result may take several: all but the last have More.
type forwardAnswer struct {
	Fault   *forwardFault    `json:"fault,omitempty"`
	LastID  int64            `json:"lastID,omitempty"`
	Changes int64            `json:"changes,omitempty"`
	Columns [][]byte         `json:"columns,omitempty"`
	Types   []string         `json:"types,omitempty"`
	Rows    [][]forwardValue `json:"rows,omitempty"`
	More    bool             `json:"more,omitempty"`
}

// forwardValue is a value of database/sql. Text and blobs are in Bytes, which JSON preserves;
// integers, booleans and the bits of a float64 are in Int.
type forwardValue struct {
	Kind  string `json:"k"` // "" is NULL
	Name  string `json:"n,omitempty"`
	Int   int64  `json:"i,omitempty"`
	Bytes []byte `json:"b,omitempty"`
}

func packValue(v any) (p forwardValue, err error) {
	switch v := v.(type) {
	case nil:
	case int64:
		p.Kind, p.Int = "int", v
	case float64:
		p.Kind, p.Int = "float", int64(math.Float64bits(v))
	case bool:
		p.Kind = "bool"
		if v {
			p.Int = 1
		}
	case []byte:
		p.Kind, p.Bytes = "blob", v
	case string:
		p.Kind, p.Bytes = "text", []byte(v)
	case time.Time:
		p.Kind = "time"
		p.Bytes, err = v.MarshalText()
	default:
		err = fmt.Errorf("%w: a value of type %T", ErrForward, v)
	}
	return p, err
}

func (p forwardValue) unpack() (v any, err error) {
	switch p.Kind {
	case "":
		return nil, nil
	case "int":
		return p.Int, nil
	case "float":
		return math.Float64frombits(uint64(p.Int)), nil
	case "bool":
		return p.Int != 0, nil
	case "blob":
		if p.Bytes == nil {
			return []byte{}, nil
		}
		return p.Bytes, nil
	case "text":
		return string(p.Bytes), nil
	case "time":
		var t time.Time
		err = t.UnmarshalText(p.Bytes)
		return t, err
	}
	return nil, fmt.Errorf("%w: a value of kind %q", ErrForward, p.Kind)
}

// forwardFault is an error of the leader. Errors that callers test for keep their identity.
type forwardFault struct {
	Text   string          `json:"text"`
	Is     []string        `json:"is,omitempty"`   // of forwardErrors
	Code   uint16          `json:"code,omitempty"` // of SQLite
	Leader *NotLeaderError `json:"leader,omitempty"`
	Broken string          `json:"broken,omitempty"` // the database that is not served
	Large  *TooLargeError  `json:"large,omitempty"`
}

var forwardErrors = map[string]error{
	"uncertain": ErrUncertain, "conflict": ErrConflict, "forward": ErrForward, "exist": fs.ErrExist, "not exist": fs.ErrNotExist,
	"canceled": context.Canceled, "deadline": context.DeadlineExceeded, "recovering": errRecovering, "file": ErrFile, "done": sql.ErrTxDone,
}

func packError(err error) *forwardFault {
	if err == nil {
		return nil
	}
	f := &forwardFault{Text: err.Error()}
	for name, e := range forwardErrors {
		if errors.Is(err, e) {
			f.Is = append(f.Is, name)
		}
	}
	var code sqlite3.ExtendedErrorCode
	var short sqlite3.ErrorCode
	switch {
	case errors.As(err, &code):
		f.Code = uint16(code)
	case errors.As(err, &short):
		f.Code = uint16(short)
	}
	f.Leader, _ = errors.AsType[*NotLeaderError](err)
	if e, ok := errors.AsType[*BrokenError](err); ok {
		f.Broken, f.Text = e.Database, e.Err.Error()
	}
	f.Large, _ = errors.AsType[*TooLargeError](err)
	return f
}

func (f *forwardFault) unpack() error {
	if f == nil {
		return nil
	}
	if f.Broken != "" {
		return &BrokenError{Database: f.Broken, Err: errors.New(f.Text)}
	}
	e := &forwardedError{text: f.Text}
	for _, name := range f.Is {
		if err := forwardErrors[name]; err != nil {
			e.is = append(e.is, err)
		}
	}
	if f.Code != 0 {
		e.is = append(e.is, sqlite3.ExtendedErrorCode(f.Code))
	}
	if f.Leader != nil {
		e.is = append(e.is, f.Leader)
	}
	if f.Large != nil {
		e.is = append(e.is, f.Large)
	}
	return e
}

// forwardedError is an error of the leader.
type forwardedError struct {
	text string
	is   []error
}

func (e *forwardedError) Error() string   { return e.text }
func (e *forwardedError) Unwrap() []error { return e.is }

// connectLeader opens a connection of the driver to the leader.
func (c *connector) connectLeader(ctx context.Context) (driver.Conn, error) {
	n := c.n
	address, id := n.raft.LeaderWithID()
	if id == "" || string(id) == n.opts.ID {
		return nil, n.role.notLeader()
	}
	raw, err := n.wire.dial(ctx, peer{string(id), string(address)}, kindForward)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("replica: the leader %s cannot be reached: %w: %w", id, err, &NotLeaderError{})
	}
	k := &forwarded{n: n, leader: string(address), conn: raw, in: bufio.NewReaderSize(raw, 64<<10)}
	k.stop = context.AfterFunc(n.life.closing, func() { _ = raw.Close() })
	if _, err := k.call(ctx, forwardRequest{Database: c.name}, false); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	return k, nil
}

// forwarded is a connection of the driver whose statements run on the leader.
type forwarded struct {
	n      *Node
	leader string // its address
	conn   net.Conn
	in     *bufio.Reader
	stop   func() bool
	lost   atomic.Bool
	mu     sync.Mutex
	inTx   bool
	txCtx  context.Context // of BeginTx, while a transaction is open
}

var (
	_ driver.ExecerContext     = (*forwarded)(nil)
	_ driver.QueryerContext    = (*forwarded)(nil)
	_ driver.ConnBeginTx       = (*forwarded)(nil)
	_ driver.SessionResetter   = (*forwarded)(nil)
	_ driver.Validator         = (*forwarded)(nil)
	_ driver.NamedValueChecker = (*forwarded)(nil)
)

// call sends a request and reads the whole answer. commits means that the request may commit:
// without an answer the outcome is unknown.
func (k *forwarded) call(ctx context.Context, r forwardRequest, commits bool) (all forwardAnswer, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lost.Load() {
		return all, k.gone(net.ErrClosed)
	}
	if err := ctx.Err(); err != nil {
		return all, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if tx := k.txCtx; tx != nil { // a statement of a transaction ends with it
		defer context.AfterFunc(tx, func() { cancel(tx.Err()) })()
	}
	defer k.watch(cancel)()
	interrupt := context.AfterFunc(ctx, func() { _ = k.conn.SetDeadline(time.Unix(1, 0)) })
	err = send(k.conn, r)
	for err == nil {
		var a forwardAnswer
		if err = receive(k.in, &a); err != nil {
			break
		}
		all.Fault, all.LastID, all.Changes, all.More = a.Fault, a.LastID, a.Changes, a.More
		if a.Columns != nil {
			all.Columns, all.Types = a.Columns, a.Types
		}
		all.Rows = append(all.Rows, a.Rows...)
		if !a.More {
			break
		}
	}
	interrupted := !interrupt()
	fault := all.Fault.unpack()
	_, deposed := errors.AsType[*NotLeaderError](fault)
	if err != nil || interrupted || deposed {
		k.lost.Store(true)
		_ = k.conn.Close()
	}
	if err == nil {
		return all, fault
	}
	if interrupted {
		err = errors.Join(err, context.Cause(ctx))
	}
	if commits {
		return all, &UncertainError{Err: err}
	}
	if cause := context.Cause(ctx); cause != nil && cause != errReplaced {
		return all, cause
	}
	return all, k.gone(err)
}

var errReplaced = errors.New("the node at the other end leads no longer")

// watch cancels a call if the node at the other end is not the leader: it may be stopped, or cut off, and
// never answer. The leader counts as lost when another one is known, or none for Options.Election.
func (k *forwarded) watch(cancel context.CancelCauseFunc) (stop func()) {
	every := k.n.opts.Election / 2
	var mu sync.Mutex
	var timer *time.Timer
	stopped, without := false, 0
	look := func() {
		mu.Lock()
		defer mu.Unlock()
		if stopped {
			return
		}
		switch leader, _ := k.n.raft.LeaderWithID(); string(leader) {
		case k.leader:
			without = 0
		case "":
			without++
		default:
			without = 3
		}
		if without > 2 {
			cancel(errReplaced)
			return
		}
		timer.Reset(every)
	}
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(every, look)
	return func() {
		mu.Lock()
		defer mu.Unlock()
		stopped = true
		timer.Stop()
	}
}

// gone is the error of a connection that was lost before a commit: the leader rolls back.
func (k *forwarded) gone(err error) error {
	if k.n.life.closing.Err() != nil {
		return net.ErrClosed
	}
	return fmt.Errorf("replica: the connection to the leader at %s was lost, nothing was committed: %w: %w", k.leader, err, &NotLeaderError{})
}

func (k *forwarded) IsValid() bool {
	leader, _ := k.n.raft.LeaderWithID()
	return !k.lost.Load() && string(leader) == k.leader
}

func (k *forwarded) ResetSession(context.Context) error {
	if !k.IsValid() {
		return driver.ErrBadConn
	}
	return nil
}

func (k *forwarded) Close() error {
	k.stop()
	k.lost.Store(true)
	if err := k.conn.Close(); !errors.Is(err, net.ErrClosed) { // a call may have closed it
		return err
	}
	return nil
}

// CheckNamedValue leaves the conversion to database/sql.
func (k *forwarded) CheckNamedValue(*driver.NamedValue) error { return driver.ErrSkip }

func (k *forwarded) statement(ctx context.Context, op, query string, args []driver.NamedValue) (forwardAnswer, error) {
	r := forwardRequest{Op: op, Query: []byte(query)}
	size := len(query)
	for _, a := range args {
		v, err := packValue(a.Value)
		if err != nil {
			return forwardAnswer{}, err
		}
		v.Name = a.Name
		r.Args = append(r.Args, v)
		size += len(v.Bytes)
	}
	if most := k.n.opts.forwards.statement; size > most {
		return forwardAnswer{}, fmt.Errorf("%w: it has %d bytes with its arguments, the limit is %d: run it on the leader", ErrForward, size, most)
	}
	return k.call(ctx, r, !k.inTx && !onlyReads(query))
}

// onlyReads reports whether a statement certainly commits nothing. The error for a lost
// connection depends on it.
func onlyReads(query string) bool {
	word, _, _ := strings.Cut(strings.TrimSpace(query), " ")
	return strings.EqualFold(word, "SELECT") && !strings.Contains(query, ";")
}

func (k *forwarded) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	a, err := k.statement(ctx, forwardExec, query, args)
	if err != nil {
		return nil, err
	}
	return forwardResult{a.LastID, a.Changes}, nil
}

type forwardResult struct{ lastID, changes int64 }

func (r forwardResult) LastInsertId() (int64, error) { return r.lastID, nil }
func (r forwardResult) RowsAffected() (int64, error) { return r.changes, nil }

func (k *forwarded) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	a, err := k.statement(ctx, forwardQuery, query, args)
	if err != nil {
		return nil, err
	}
	return &forwardedRows{a}, nil
}

// forwardedRows is a result in memory.
type forwardedRows struct{ a forwardAnswer }

var _ driver.RowsColumnTypeDatabaseTypeName = (*forwardedRows)(nil)

func (r *forwardedRows) Columns() []string {
	names := make([]string, len(r.a.Columns))
	for i, name := range r.a.Columns {
		names[i] = string(name)
	}
	return names
}

func (r *forwardedRows) ColumnTypeDatabaseTypeName(i int) string { return r.a.Types[i] }
func (r *forwardedRows) Close() error                            { r.a.Rows = nil; return nil }

func (r *forwardedRows) Next(dest []driver.Value) (err error) {
	if len(r.a.Rows) == 0 {
		return io.EOF
	}
	for i, v := range r.a.Rows[0] {
		if dest[i], err = v.unpack(); err != nil {
			return err
		}
	}
	r.a.Rows[0] = nil
	r.a.Rows = r.a.Rows[1:]
	return nil
}

func (k *forwarded) Prepare(query string) (driver.Stmt, error) { return &forwardedStmt{k, query}, nil }

// forwardedStmt is a statement that the leader prepares for each execution.
type forwardedStmt struct {
	k     *forwarded
	query string
}

var (
	_ driver.StmtExecContext  = (*forwardedStmt)(nil)
	_ driver.StmtQueryContext = (*forwardedStmt)(nil)
)

func (s *forwardedStmt) Close() error  { return nil }
func (s *forwardedStmt) NumInput() int { return -1 }

func (s *forwardedStmt) Exec([]driver.Value) (driver.Result, error) { return nil, driver.ErrSkip }
func (s *forwardedStmt) Query([]driver.Value) (driver.Rows, error)  { return nil, driver.ErrSkip }

func (s *forwardedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.k.ExecContext(ctx, s.query, args)
}

func (s *forwardedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.k.QueryContext(ctx, s.query, args)
}

func (k *forwarded) Begin() (driver.Tx, error) {
	return k.BeginTx(context.Background(), driver.TxOptions{})
}

func (k *forwarded) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	if _, err := k.call(ctx, forwardRequest{Op: forwardBegin, ReadOnly: o.ReadOnly, Isolation: int(o.Isolation)}, false); err != nil {
		return nil, err
	}
	k.inTx, k.txCtx = true, ctx
	return forwardedTx{k, ctx}, nil
}

// drop ends the connection. The leader rolls back when it notices that.
func (k *forwarded) drop() {
	k.lost.Store(true)
	_ = k.conn.Close()
}

// forwardedTx is a transaction that runs on the leader until the context of BeginTx ends.
type forwardedTx struct {
	k   *forwarded
	ctx context.Context
}

// end sends the end of the transaction, which is over then.
func (t forwardedTx) end(op string) error {
	t.k.inTx, t.k.txCtx = false, nil
	err := t.ctx.Err()
	if err != nil {
		t.k.drop()
		return err
	}
	_, err = t.k.call(t.ctx, forwardRequest{Op: op}, op == forwardCommit)
	return err
}

func (t forwardedTx) Commit() error { return t.end(forwardCommit) }

func (t forwardedTx) Rollback() error {
	if t.k.lost.Load() {
		t.k.inTx, t.k.txCtx = false, nil
		return nil // the leader has rolled back, or will when it notices the lost connection
	}
	err := t.end(forwardRollback)
	if t.ctx.Err() != nil {
		return nil
	}
	return err
}
