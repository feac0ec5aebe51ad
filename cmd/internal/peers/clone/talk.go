// SPDX-License-Identifier: MIT

//go:build ignore

package main

import (
	"bufio"
	"encoding/json"
	"os"
	"runtime"
	"runtime/debug"
)

// talk writes the address of the server, answers each line of the input with counters, and returns
// at the end of the input.
func talk(addr, backend string) {
	out := json.NewEncoder(os.Stdout)
	_ = out.Encode(map[string]any{"addr": addr, "pid": os.Getpid(), "backend": backend})
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		live := uint64(0)
		if lines.Text() == "settle" {
			debug.FreeOSMemory()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if lines.Text() == "settle" {
			live = m.HeapAlloc + m.StackInuse
		}
		_ = out.Encode(map[string]any{"enters": -1, "objects": m.Mallocs, "bytes": m.TotalAlloc, "live": live})
	}
}
