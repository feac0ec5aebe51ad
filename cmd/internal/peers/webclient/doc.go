// SPDX-License-Identifier: MIT

// Package webclient lets ab and wrk, which others have written, ask a server of HTTP: a check that
// what our own load generator says of net/http on our listener is not of its making.
package webclient
