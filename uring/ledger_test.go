// SPDX-License-Identifier: MIT

package uring_test

import (
	"testing"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/uring"
)

// The ledger is one table with a row for each opcode, setup flag and register operation of
// Linux 6.18. A row names the builders or methods that serve it, the goldens of their
// encodings, and the kernel test; or the reason why no machine here can run one. The files
// op_*_test.go, setup_test.go and register_*_test.go enter their rows; TestLedgerComplete
// fails when one is missing.
//
// Rows and goldens build on any system. A kernel test that needs Linux-only identifiers is
// in a file op_*_linux_test.go, which enters it with kernelOp.

// row is an entry of the ledger.
type row struct {
	since   string             // the first kernel that has it, as in 5.19
	uses    []string           // the methods that serve it, as in SQE.Read
	goldens []golden           // byte-exact encodings, at least one for each builder of an opcode
	kernel  func(t *testing.T) // runs it on the running kernel
	reason  string             // why kernel is nil, or what kernel does not test
}

// golden is an entry made by a builder and the bytes that the kernel must see.
type golden struct {
	name  string
	build func(e *uring.SQE)
	want  abi.SQE
}

var (
	opLedger       = map[uring.Op]row{}
	setupLedger    = map[uring.SetupFlags]row{}
	registerLedger = map[uring.RegisterOp]row{}

	opKernel = map[uring.Op]func(t *testing.T){}
)

func ledgerOp(op uring.Op, r row)               { enter(opLedger, op, r) }
func ledgerSetup(f uring.SetupFlags, r row)     { enter(setupLedger, f, r) }
func ledgerRegister(op uring.RegisterOp, r row) { enter(registerLedger, op, r) }

// kernelOp adds the kernel test to a row that another file enters.
func kernelOp(op uring.Op, kernel func(t *testing.T)) { enter(opKernel, op, kernel) }

func enter[K comparable, V any](ledger map[K]V, key K, v V) {
	if _, twice := ledger[key]; twice {
		panic("two rows in the ledger for one key")
	}
	ledger[key] = v
}

// ledgerEntry is a row with its key in the ledger.
type ledgerEntry struct {
	kind string // op, setup or register
	name string // the kernel's name without its prefix
	op   uring.Op
	row
	missing bool
}

// ledgerEntries returns the rows that the ledger must have, in the kernel's order.
func ledgerEntries() []ledgerEntry {
	var all []ledgerEntry
	for op := range uring.Op(uring.OpCount) {
		r, ok := opLedger[op]
		if r.kernel == nil {
			r.kernel = opKernel[op]
		}
		all = append(all, ledgerEntry{"op", op.String(), op, r, !ok})
	}
	for _, f := range setupFlags {
		r, ok := setupLedger[f.flag]
		all = append(all, ledgerEntry{"setup", f.name, 0, r, !ok})
	}
	for op := range uring.RegisterOp(uring.RegisterOpCount) {
		r, ok := registerLedger[op]
		all = append(all, ledgerEntry{"register", op.String(), 0, r, !ok})
	}
	return all
}

// setupFlags are the setup flags of Linux 6.18.
var setupFlags = []struct {
	flag uring.SetupFlags
	name string
}{
	{uring.SetupIOPoll, "IOPOLL"},
	{uring.SetupSQPoll, "SQPOLL"},
	{uring.SetupSQAff, "SQ_AFF"},
	{uring.SetupCQSize, "CQSIZE"},
	{uring.SetupClamp, "CLAMP"},
	{uring.SetupAttachWQ, "ATTACH_WQ"},
	{uring.SetupDisabled, "R_DISABLED"},
	{uring.SetupSubmitAll, "SUBMIT_ALL"},
	{uring.SetupCoopTaskrun, "COOP_TASKRUN"},
	{uring.SetupTaskrunFlag, "TASKRUN_FLAG"},
	{uring.SetupSQE128, "SQE128"},
	{uring.SetupCQE32, "CQE32"},
	{uring.SetupSingleIssuer, "SINGLE_ISSUER"},
	{uring.SetupDeferTaskrun, "DEFER_TASKRUN"},
	{uring.SetupNoMmap, "NO_MMAP"},
	{uring.SetupRegisteredFDOnly, "REGISTERED_FD_ONLY"},
	{uring.SetupNoSQArray, "NO_SQARRAY"},
	{uring.SetupHybridIOPoll, "HYBRID_IOPOLL"},
	{uring.SetupCQEMixed, "CQE_MIXED"},
}
