// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"os"

	"github.com/ringside-io/ringside/cmd/internal/ab"
	"github.com/ringside-io/ringside/cmd/internal/suite"
)

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
