// SPDX-License-Identifier: MIT

// Package nettests holds tests of package unet by others' programs: suites,
// servers and clients that expect package net. It is a module of its own so
// that what they need is not needed by the users of unet.
package nettests
