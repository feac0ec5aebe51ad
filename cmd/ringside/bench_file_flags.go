// SPDX-License-Identifier: MIT

package main

import "github.com/ringside-io/ringside/cmd/internal/suite"

// fastValue is the flag that chooses whether the fast device is measured.
type fastValue struct{ fast *suite.Fast }

func (v fastValue) String() string {
	if v.fast == nil {
		return ""
	}
	return string(*v.fast)
}

func (fastValue) Type() string { return "word" }

func (v fastValue) Set(text string) error {
	switch text {
	case "true":
		text = string(suite.FastAdd)
	case "false":
		text = string(suite.FastNone)
	}
	*v.fast = suite.Fast(text)
	return nil
}
