// SPDX-License-Identifier: MIT

//go:build !linux

package features

import "errors"

// files would be descriptors that a trial opened: there are no trials here.
type files struct{}

func (*files) add(...int)              {}
func (*files) close()                  {}
func (*files) pair() (int, int, error) { return -1, -1, errors.ErrUnsupported }
func (*files) tcp() (int, error)       { return -1, errors.ErrUnsupported }
func (*files) udp() (int, error)       { return -1, errors.ErrUnsupported }
func (*files) listener() (int, error)  { return -1, errors.ErrUnsupported }
func (*files) send(int, []byte) error  { return errors.ErrUnsupported }

const acceptCloexec, solSocket, soType, sockStream = 0, 0, 0, 0
