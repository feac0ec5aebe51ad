// SPDX-License-Identifier: MIT

// Package fileserver serves the files below a directory over HTTP: package net/http with names
// resolved by ufile.Root and bytes sent the way that measured best (docs/serve.md).
//
// Nothing outside of the directory is served, whatever a request or a symbolic link says. Ranges,
// conditions and the errors of both are http.ServeContent's.
package fileserver
