// SPDX-License-Identifier: MIT

package replica

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// The errors of writes and of databases.
var (
	// ErrUncertain is matched by the error of a transaction whose outcome is unknown. The
	// transaction is later complete on all nodes, or on none. A query with RETURNING has
	// committed when it returns rows, also if their context then ends them with an error.
	ErrUncertain = errors.New("replica: it is not known whether the transaction was committed")
	// ErrConflict is returned for a transaction that was rolled back because another one,
	// whose outcome was unknown, was committed before it. The transaction can be repeated.
	ErrConflict = errors.New("replica: another transaction was committed before this one; repeat it")

	errEnded      = errors.New("the node has ended the connection")
	errLacks      = errors.New("the file lacks a transaction that was committed")
	errDeleted    = fmt.Errorf("replica: the database was deleted: %w", os.ErrNotExist)
	errRecovering = errors.New("the node has not caught up with the log since its start")
)

// UncertainError wraps ErrUncertain and the reason.
type UncertainError struct{ Err error }

// Error returns the text of ErrUncertain and the reason.
func (e *UncertainError) Error() string { return ErrUncertain.Error() + ": " + e.Err.Error() }

// Unwrap returns ErrUncertain and the reason.
func (e *UncertainError) Unwrap() []error { return []error{ErrUncertain, e.Err} }

// BrokenError reports a database whose file on this node is missing or differs from the
// other nodes'. This node does not serve the database until it has fetched the file from
// another node.
type BrokenError struct {
	Database string
	Err      error
}

// Error returns the name of the database and the reason.
func (e *BrokenError) Error() string {
	return fmt.Sprintf("replica: %s is not served by this node until it is fetched again: %v", e.Database, e.Err)
}

// Unwrap returns the reason.
func (e *BrokenError) Unwrap() error { return e.Err }

// reason returns why a context is done, which a firstRow hides from SQLite.
func reason(ctx context.Context) error {
	if f, ok := ctx.(*firstRow); ok {
		ctx = f.Context
	}
	return ctx.Err()
}

// NotLeaderError is returned on a node that does not lead, for writes and for reads of
// connections without [Stale].
type NotLeaderError struct {
	// Leader is the leader's ID, and Address is its address. Both are empty if the node knows
	// no leader, for example during an election.
	Leader, Address string
}

// Error names the leader, if there is one.
func (e *NotLeaderError) Error() string {
	if e.Leader == "" {
		return "replica: this node is not the leader, and there is none at the moment"
	}
	return fmt.Sprintf("replica: this node is not the leader: that is %s at %s", e.Leader, e.Address)
}

// ErrStale is returned for a read whose bound cannot be met: the leader cannot be reached, or
// this node is behind.
var ErrStale = errors.New("replica: this node may be further behind than Stale allows")

// ErrDiffer is matched by the error of Verify if members have different pages.
var ErrDiffer = errors.New("replica: the pages differ")

// TooLargeError reports a transaction that exceeds Options.MaxTransaction.
type TooLargeError struct {
	Limit int // in bytes of WAL frames
}

// Error names the limit and the option that sets it.
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("replica: the transaction changes more than %d bytes of pages: make it smaller, or raise Options.MaxTransaction on all nodes", e.Limit)
}
