// SPDX-License-Identifier: MIT

// Package echo holds the servers that the workload "echo" measures, each in the
// way its library is meant to be used: what comes is sent back.
package echo
