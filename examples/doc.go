// SPDX-License-Identifier: MIT

// Package examples has no code of its own: each folder below it is a program that
// shows one idea. Its tests build all of them and end them by signals while they work.
package examples
