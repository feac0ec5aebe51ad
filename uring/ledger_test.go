// SPDX-License-Identifier: MIT

package uring_test

import (
	"testing"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/uring"
)

// The ledger is one table with a row for each opcode, setup flag and register
// operation of Linux 6.18. A row names the builders or methods that serve it,
// the goldens of their encodings, and the kernel test; or the reason why no
// machine here can run one. The files op_*_test.go, setup_test.go and
// register_*_test.go enter their rows; TestLedgerComplete fails when one is
// missing.

// row is an entry of the ledger.
type row struct {
	since   string             // the kernel that brought it, as in 5.19
	uses    []string           // the methods that serve it, as in SQE.Read
	goldens []golden           // byte-exact encodings, at least one per builder of an opcode
	kernel  func(t *testing.T) // tries it on the running kernel
	reason  string             // why kernel is nil, or what of it cannot be tried here
}

// golden is an entry built by a builder and the bytes that the kernel must see.
type golden struct {
	name  string
	build func(e *uring.SQE)
	want  abi.SQE
}

var (
	opLedger       = map[uring.Op]row{}
	setupLedger    = map[uring.SetupFlags]row{}
	registerLedger = map[uring.RegisterOp]row{}
)

func ledgerOp(op uring.Op, r row)               { enter(opLedger, op, r) }
func ledgerSetup(f uring.SetupFlags, r row)     { enter(setupLedger, f, r) }
func ledgerRegister(op uring.RegisterOp, r row) { enter(registerLedger, op, r) }

func enter[K comparable](ledger map[K]row, key K, r row) {
	if _, twice := ledger[key]; twice {
		panic("two rows in the ledger for one key")
	}
	ledger[key] = r
}
