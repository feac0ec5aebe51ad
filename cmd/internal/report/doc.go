// SPDX-License-Identifier: MIT

// Package report holds the one result schema of all benchmark suites and its forms: the JSON
// document, the Go benchmark format that benchstat reads, the table and the summary in words.
package report
