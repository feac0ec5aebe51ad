// SPDX-License-Identifier: MIT

//go:build !unix

package sys

import "errors"

func closeFD(int) error { return errors.ErrUnsupported }
