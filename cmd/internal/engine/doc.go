// SPDX-License-Identifier: MIT

// Package engine names the ways a workload can reach a file: the standard library ("os") and
// ringside. A workload is written once against [Engine] and [File]; nothing but the engine
// differs between two measurements that are compared.
package engine
