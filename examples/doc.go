// SPDX-License-Identifier: MIT

// Package examples has no code. Each directory below it is a program that shows one
// idea. The tests build every program and end it with a signal while it works.
package examples
