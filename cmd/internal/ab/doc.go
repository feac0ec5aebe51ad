// SPDX-License-Identifier: MIT

// Package ab asks a web server for one page many times, and tells how long that took in the terms of
// ApacheBench: with the program ab where it is installed, else with a load generator of its own that
// measures the same.
package ab
