// SPDX-License-Identifier: MIT

package echo

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"runtime"
	"runtime/debug"
)

// Hello is the first line of a server process: where to find it.
type Hello struct {
	Addr string `json:"addr"`
	Pid  int    `json:"pid"`
	// Others are further processes of the server.
	Others  []int  `json:"others,omitempty"`
	Backend string `json:"backend,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// Count is its answer to each line: counters since its start.
type Count struct {
	Enters  int64  `json:"enters"`
	Objects uint64 `json:"objects"`
	Bytes   uint64 `json:"bytes"`
	// Live is what the heap and the stacks hold. It is told in answer to "settle", which is given after
	// all garbage has been collected and returned to the system.
	Live uint64 `json:"live,omitempty"`
}

// Lines that a server process understands.
const (
	askCount  = "count"
	askSettle = "settle"
)

// Serve runs an engine in this process. It writes a Hello and then, for each
// line that it reads, a Count; it ends with its input.
func Serve(setup Setup, in io.Reader, out io.Writer) error {
	s, err := Start(setup)
	if err != nil {
		return err
	}
	enc := json.NewEncoder(out)
	h := Hello{Addr: s.Addr(), Pid: os.Getpid()}
	f, isForeign := s.(foreign)
	if isForeign {
		defer s.Close()
		h.Pid, h.Others = f.Workers()[0], f.Workers()[1:]
	}
	h.Backend, h.Reason = s.Backend()
	if err := enc.Encode(h); err != nil {
		return err
	}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		if err := enc.Encode(count(s, lines.Text() == askSettle)); err != nil {
			return err
		}
	}
	return nil // The end of the process is the quickest end of a server in it.
}

func count(s Server, settle bool) Count {
	if settle {
		debug.FreeOSMemory()
	}
	if _, ok := s.(foreign); ok {
		return Count{Enters: s.Enters()}
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	c := Count{Enters: s.Enters(), Objects: m.Mallocs, Bytes: m.TotalAlloc}
	if settle {
		c.Live = m.HeapAlloc + m.StackInuse
	}
	return c
}
