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

// programValue is a flag that chooses whether another program is used: yes when set, and the
// opposite when set to false. Its two flags are --NAME and --no-NAME.
type programValue struct {
	name   string
	choice *suite.Choice
	yes    suite.Choice
}

func (v programValue) String() string { return "" }

func (programValue) Type() string { return "bool" }

func (v programValue) Set(text string) error {
	on, err := strconv.ParseBool(text)
	if err != nil {
		return fmt.Errorf("%q is neither true nor false", text)
	}
	choice := v.yes
	if !on {
		choice = suite.Always + suite.Never - v.yes
	}
	if *v.choice != suite.Auto && *v.choice != choice {
		return fmt.Errorf("--%s and --no-%[1]s contradict each other", v.name)
	}
	*v.choice = choice
	return nil
}
