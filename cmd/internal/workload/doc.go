// SPDX-License-Identifier: MIT

// Package workload defines what is measured, once for the command line and for go test -bench.
package workload
