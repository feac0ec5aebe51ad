// SPDX-License-Identifier: MIT

package abi_test

import (
	"go/constant"
	"go/token"
	"testing"

	"github.com/ringside-io/ringside/uring"
)

// TestNames compares the names that package uring prints with the constants.
func TestNames(t *testing.T) {
	ours := sourceConstants(t)
	check := func(name string, value int) {
		if got := ours[name]; got == nil || !constant.Compare(got, token.EQL, constant.MakeInt64(int64(value))) {
			t.Errorf("%s is %v, %d in package uring", name, got, value)
		}
	}
	for op := range uring.OpCount {
		check("IORING_OP_"+uring.Op(op).String(), op)
	}
	for op := range uring.RegisterOpCount {
		check("IORING_"+uring.RegisterOp(op).String(), op)
	}
}
