// SPDX-License-Identifier: MIT

//go:build race

package tenants

// raced is whether the race detector is on, which takes memory of its own.
const raced = true
