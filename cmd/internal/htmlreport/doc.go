// SPDX-License-Identifier: MIT

// Package htmlreport writes a benchmark run as one HTML page that needs nothing else: no network, no
// scripts, no fonts. It has what the run says in words, a picture of each comparison and of each axis
// that was measured, and the tables behind them.
package htmlreport
