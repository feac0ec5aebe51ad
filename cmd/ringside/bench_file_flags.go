// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/ringside-io/ringside/cmd/internal/suite"
)

// boolFlag registers a flag that may stand without a value.
func boolFlag(f *pflag.FlagSet, v pflag.Value, name, usage string) {
	f.VarPF(v, name, "", usage).NoOptDefVal = "true"
}

// fioValue is a flag that chooses whether fio is used: yes when set, and the opposite when set to
// false.
type fioValue struct {
	choice *suite.Choice
	yes    suite.Choice
}

func (v fioValue) String() string { return "" }

func (fioValue) Type() string { return "bool" }

func (v fioValue) Set(text string) error {
	on, err := strconv.ParseBool(text)
	if err != nil {
		return fmt.Errorf("%q is neither true nor false", text)
	}
	choice := v.yes
	if !on {
		choice = suite.Always + suite.Never - v.yes
	}
	if *v.choice != suite.Auto && *v.choice != choice {
		return fmt.Errorf("--fio and --no-fio contradict each other")
	}
	*v.choice = choice
	return nil
}

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
