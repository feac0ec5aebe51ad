// SPDX-License-Identifier: MIT

//go:build !linux

package watchtest

// suite is empty: watchers need Linux.
var suite []group
