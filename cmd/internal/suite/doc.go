// SPDX-License-Identifier: MIT

// Package suite runs the benchmark suites of the command line: it plans the grid, prepares what is
// measured, runs the rounds and collects a report. How a round is run is the caller's choice.
package suite
