// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/ringside-io/ringside/cmd/internal/ab"
	"github.com/ringside-io/ringside/cmd/internal/suite"
)

// abValue is a flag that chooses whether ab is used: yes when set, and the opposite when set to
// false.
type abValue struct {
	choice *suite.Choice
	yes    suite.Choice
}

func (v abValue) String() string { return "" }

func (abValue) Type() string { return "bool" }

func (v abValue) Set(text string) error {
	on, err := strconv.ParseBool(text)
	if err != nil {
		return fmt.Errorf("%q is neither true nor false", text)
	}
	choice := v.yes
	if !on {
		choice = suite.Always + suite.Never - v.yes
	}
	if *v.choice != suite.Auto && *v.choice != choice {
		return fmt.Errorf("--ab and --no-ab contradict each other")
	}
	*v.choice = choice
	return nil
}

// findAsker finds ab, or has this program ask.
func findAsker(ctx context.Context, choice suite.Choice) (suite.Asker, error) {
	if choice != suite.Never {
		a, err := abAsker(ctx)
		if err == nil {
			return a, nil
		}
		if choice == suite.Always {
			return a, fmt.Errorf("--ab: %w", err)
		}
		return ownAsker("requests come from a load generator of our own: " + err.Error())
	}
	return ownAsker("")
}

func abAsker(ctx context.Context) (suite.Asker, error) {
	program, err := ab.Find()
	if err != nil {
		return suite.Asker{}, err
	}
	version, err := ab.Version(ctx, program)
	return suite.Asker{Name: version, Program: []string{program}}, err
}

func ownAsker(note string) (suite.Asker, error) {
	self, err := os.Executable()
	return suite.Asker{Name: ab.NameOwn, Note: note, Program: []string{self, workerName}, Own: true}, err
}
