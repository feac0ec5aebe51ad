// SPDX-License-Identifier: MIT

// Package nginx runs nginx as a server of the files below a directory, to be measured beside ours.
package nginx
