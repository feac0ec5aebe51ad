// SPDX-License-Identifier: MIT

// Package echo holds the servers of the suite "net", each in the way its library is meant to be used.
// What comes is sent back, by some after work; those that have a net.Listener serve HTTP as well.
package echo
