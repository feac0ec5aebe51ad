// SPDX-License-Identifier: MIT

//go:build unix

package workload

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
)

func TestProbeDirectKnowsRefusals(t *testing.T) {
	m := newMemory(datafile.UnitSize)
	m.openErr = &os.PathError{Op: "open", Err: syscall.EINVAL}
	if err := ProbeDirect(m, ""); !errors.Is(err, ErrNoDirect) {
		t.Errorf("EINVAL at open: %v", err)
	}
	m.openErr = nil
	m.tamper = func([]byte, int64, int, error) (int, error) { return 0, syscall.EINVAL }
	if err := ProbeDirect(m, ""); !errors.Is(err, ErrNoDirect) {
		t.Errorf("EINVAL at read: %v", err)
	}
	m.tamper = func([]byte, int64, int, error) (int, error) { return 0, syscall.EIO }
	if err := ProbeDirect(m, ""); errors.Is(err, ErrNoDirect) || !errors.Is(err, syscall.EIO) {
		t.Errorf("EIO at read: %v", err)
	}
}
