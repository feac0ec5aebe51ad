// SPDX-License-Identifier: MIT

// Package hostinfo finds out what a result file must say about machine, storage and build. What a
// system does not tell is left empty; nothing here fails.
package hostinfo
