// SPDX-License-Identifier: MIT

// Package examples has no code: each directory below it is a program that shows one
// idea. The tests build all programs and end them by signals while they work.
package examples
