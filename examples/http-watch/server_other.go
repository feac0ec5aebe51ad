// SPDX-License-Identifier: MIT

//go:build !linux

package main

import "errors"

func serve(config) error { return errors.ErrUnsupported }
