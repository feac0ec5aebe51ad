// SPDX-License-Identifier: MIT

package reactor

import (
	"errors"
	"os"
	"syscall"
	"testing"
)

func TestErrOfAResult(t *testing.T) {
	for _, c := range []struct {
		res  Result
		want error
	}{
		{Result{}, nil},
		{Result{Res: 7}, nil},
		{Result{Res: -int32(syscall.EIO)}, syscall.EIO},
		{Result{Res: -int32(syscall.EPERM)}, os.ErrPermission},
		{Result{Cause: ErrClosed}, ErrClosed},
		{Result{Res: -int32(syscall.ECANCELED), Cause: ErrFailed}, ErrFailed},
	} {
		if err := c.res.Err(); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%+v: %v, want %v", c.res, err, c.want)
		}
	}
	if !errors.Is(ErrClosed, os.ErrClosed) || errors.Is(ErrClosed, ErrFailed) {
		t.Errorf("%v matches something else than os.ErrClosed", ErrClosed)
	}
}
