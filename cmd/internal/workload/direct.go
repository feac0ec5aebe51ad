// SPDX-License-Identifier: MIT

package workload

import (
	"errors"
	"fmt"
	"io"

	"github.com/ringside-io/ringside/cmd/internal/engine"
)

// ErrNoDirect is matched by the error of [ProbeDirect] where O_DIRECT does not work.
var ErrNoDirect = errors.New("the file system has no O_DIRECT")

// ProbeDirect opens the file with O_DIRECT and reads its first block. Some file systems refuse
// the flag, others only the read.
func ProbeDirect(e engine.Engine, path string) error {
	f, err := e.OpenRead(path, true)
	if err != nil {
		return noDirect(err)
	}
	defer f.Close()
	n, err := f.ReadAt(alignedBuffer(bufferAlign), 0)
	if err != nil && (n == 0 || !errors.Is(err, io.EOF)) {
		return noDirect(err)
	}
	return nil
}

// noDirect marks the answers that mean "not here"; others stay errors of their own.
func noDirect(err error) error {
	if errors.Is(err, errors.ErrUnsupported) || isInvalid(err) {
		return fmt.Errorf("%w: %w", ErrNoDirect, err)
	}
	return err
}
