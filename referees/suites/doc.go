// SPDX-License-Identifier: MIT

// Package suites runs test suites of other projects in a Go tree whose os opens files through
// package ufile and whose net moves data through package unet (see internal/overlay). Each suite also
// runs unchanged. A test that passes there must pass in every mode, or be in the table of
// docs/referees.md.
//
//	make referees                                          # all of them
//	RINGSIDE_REFEREES=all go test -v -run TestGoNet ./referees/suites
//
// RINGSIDE_REFEREES_RACE=1 builds them with the race detector.
// RINGSIDE_REFEREES_TASKS=16 runs them, also unchanged, where there may be 16 tasks: io_uring has no workers there.
package suites
