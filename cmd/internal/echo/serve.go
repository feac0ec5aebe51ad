// SPDX-License-Identifier: MIT

package echo

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"runtime"
)

// Hello is the first line of a server process: where to find it.
type Hello struct {
	Addr    string `json:"addr"`
	Pid     int    `json:"pid"`
	Backend string `json:"backend,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// Count is its answer to each line: counters since its start.
type Count struct {
	Enters  int64  `json:"enters"`
	Objects uint64 `json:"objects"`
	Bytes   uint64 `json:"bytes"`
}

// Serve runs an engine in this process. It writes a Hello and then, for each
// line that it reads, a Count; it ends with its input.
func Serve(engine string, in io.Reader, out io.Writer) error {
	s, err := Start(engine)
	if err != nil {
		return err
	}
	enc := json.NewEncoder(out)
	h := Hello{Addr: s.Addr(), Pid: os.Getpid()}
	h.Backend, h.Reason = s.Backend()
	if err := enc.Encode(h); err != nil {
		return err
	}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if err := enc.Encode(Count{Enters: s.Enters(), Objects: m.Mallocs, Bytes: m.TotalAlloc}); err != nil {
			return err
		}
	}
	return nil // The end of the process is the quickest end of the server.
}
