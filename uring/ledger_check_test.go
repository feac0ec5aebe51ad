// SPDX-License-Identifier: MIT

package uring_test

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/probe"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

func TestLedgerComplete(t *testing.T) {
	symbols := ledgerSymbols(t)
	for _, e := range ledgerEntries() {
		t.Run(e.kind+"/"+e.name, func(t *testing.T) {
			if e.missing {
				t.Fatal("no row in the ledger")
			}
			if _, err := probe.ParseVersion(e.since); err != nil {
				t.Errorf("since: %v", err)
			}
			// On other systems the Linux-only files are not compiled in.
			if e.kernel == nil && e.reason == "" && runtime.GOOS == "linux" {
				t.Error("neither a kernel test nor a reason")
			}
			if len(e.uses) == 0 {
				t.Error("the row names no builder or method")
			}
			for _, name := range e.uses {
				if !symbols(name) {
					t.Errorf("it uses %s, which does not exist", name)
				}
			}
			if e.kind == "op" {
				checkGoldens(t, e)
			}
		})
	}
	for op := range opLedger {
		if op >= uring.OpCount {
			t.Errorf("row for unknown opcode %v", op)
		}
	}
	for op := range registerLedger {
		if op >= uring.RegisterOpCount {
			t.Errorf("row for unknown register operation %v", op)
		}
	}
	for op := range opKernel {
		if opLedger[op].kernel != nil {
			t.Errorf("two kernel tests for %v", op)
		}
	}
	if n := len(setupLedger); n > len(setupFlags) {
		t.Errorf("%d rows for %d setup flags", n, len(setupFlags))
	}
}

// checkGoldens checks the fields of a row without building anything.
func checkGoldens(t *testing.T, e ledgerEntry) {
	if len(e.goldens) == 0 {
		t.Error("no golden")
	}
	seen := map[string]bool{}
	for _, g := range e.goldens {
		if g.want.Opcode != uint8(e.op) {
			t.Errorf("golden %q has opcode %v", g.name, uring.Op(g.want.Opcode))
		}
		if g.name == "" || seen[g.name] {
			t.Errorf("golden without a name of its own: %q", g.name)
		}
		seen[g.name] = true
	}
}

// TestLedgerBuilders fails for a method of SQE that no row names.
func TestLedgerBuilders(t *testing.T) {
	named := map[string]bool{}
	for _, r := range opLedger {
		for _, name := range r.uses {
			named[name] = true
		}
	}
	for m := range reflect.TypeFor[*uring.SQE]().Methods() {
		if !named["SQE."+m.Name] {
			t.Errorf("no row of the ledger uses SQE.%s", m.Name)
		}
	}
}

// ledgerSymbols returns a function that reports whether a name such as SQE.Read or Open
// exists. Without the source tree it knows the methods of the main types and accepts all
// other names.
func ledgerSymbols(t *testing.T) func(name string) bool {
	if os.Getenv(ringtest.LaneEnv) == "" {
		known := packageSymbols(t)
		return func(name string) bool { return known[strings.TrimPrefix(name, "uring.")] }
	}
	types := map[string]reflect.Type{
		"SQE":     reflect.TypeFor[*uring.SQE](),
		"Ring":    reflect.TypeFor[*uring.Ring](),
		"BufRing": reflect.TypeFor[*uring.BufRing](),
	}
	return func(name string) bool {
		typ, method, _ := strings.Cut(name, ".")
		if types[typ] == nil {
			return true
		}
		_, ok := types[typ].MethodByName(method)
		return ok
	}
}

// native converts an entry of the ledger, which is written for a little-endian machine, to
// this machine's byte order: fields of 16 and 32 bits lie within a wider one, and the
// kernel swaps the halves of poll32_events on big-endian machines.
func native(e abi.SQE) abi.SQE {
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		return e
	}
	switch e.Opcode {
	case abi.IORING_OP_POLL_ADD, abi.IORING_OP_POLL_REMOVE:
		e.OpFlags = bits.RotateLeft32(e.OpFlags, 16)
	case abi.IORING_OP_SEND, abi.IORING_OP_SEND_ZC:
		e.FileIndex = bits.RotateLeft32(e.FileIndex, 16) // addr_len
	case abi.IORING_OP_URING_CMD:
		if e.Off == 1 { // the bytes of a command
			e.Addr3, e.Pad2 = bits.ReverseBytes64(e.Addr3), bits.ReverseBytes64(e.Pad2)
		}
		e.Off = bits.RotateLeft64(e.Off, 32) // cmd_op
		if e.FileIndex != 0 {
			e.Addr = bits.RotateLeft64(e.Addr, 32) // level and optname
		}
	}
	return e
}

// Promise: uring/builder-encodes-operation
func TestLedgerGoldens(t *testing.T) {
	forGoldens(t, func(t *testing.T, g golden) {
		for _, dirt := range []byte{0xff, 0} {
			e := new(uring.SQE)
			for i := range sqeBytes(e) {
				sqeBytes(e)[i] = dirt
			}
			g.build(e)
			if got := abi.SQE(*e.Raw()); got != native(g.want) {
				t.Errorf("over an entry full of %#02x:\n got %s\nwant %s", dirt, sqeString(got), sqeString(native(g.want)))
			}
		}
	})
}

func TestBuildersDoNotAllocate(t *testing.T) {
	ringtest.AsksNoKernel(t)
	e := new(uring.SQE)
	forGoldens(t, func(t *testing.T, g golden) {
		if n := ringtest.Allocations(10, func() { g.build(e) }); n != 0 {
			t.Errorf("%v allocations per entry", n)
		}
	})
}

func forGoldens(t *testing.T, test func(t *testing.T, g golden)) {
	for _, e := range ledgerEntries() {
		for _, g := range e.goldens {
			t.Run(e.name+"/"+g.name, func(t *testing.T) { test(t, g) })
		}
	}
}

func sqeBytes(e *uring.SQE) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(e)), unsafe.Sizeof(*e))
}

// sqeString shows the fields of an entry that are not zero.
func sqeString(e abi.SQE) string {
	var b strings.Builder
	v := reflect.ValueOf(e)
	for i := range v.NumField() {
		if !v.Field(i).IsZero() {
			fmt.Fprintf(&b, "%s=%#x ", v.Type().Field(i).Name, v.Field(i).Interface())
		}
	}
	return b.String()
}

// Promise: uring/builder-encodes-operation
func TestLedgerKernel(t *testing.T) {
	for _, e := range ledgerEntries() {
		t.Run(e.kind+"/"+e.name, func(t *testing.T) {
			if e.kernel == nil {
				t.Skipf("no kernel test: %s", e.reason)
			}
			e.kernel(t)
		})
	}
}
