// SPDX-License-Identifier: MIT

package echo

import (
	"fmt"
	"runtime"
	"time"
)

// Setup says what a server process runs.
type Setup struct {
	// Engine is its name.
	Engine string `json:"engine"`
	// Procs is the GOMAXPROCS of the process, 0 for the system's choice. It is set from outside, when
	// the process starts.
	Procs int `json:"procs,omitempty"`
	// Work is done for each message before it is sent back.
	Work Work `json:"work,omitzero"`
	// HTTP, if not 0, makes it a server of net/http whose answers have a body of so many bytes.
	HTTP int `json:"http,omitempty"`
	// Files, if not empty, makes it a server of the files below that directory.
	Files string `json:"files,omitempty"`
	// Buffer is the length of each connection's buffer, 0 for one of 4 KiB.
	Buffer int `json:"buffer,omitempty"`
}

// Work is what a handler does.
type Work struct {
	// Spins is how many steps it computes, see [SpinsPerMicrosecond].
	Spins int `json:"spins,omitempty"`
	// Sleep is how long it waits.
	Sleep time.Duration `json:"sleep_ns,omitempty"`
}

// do does it.
func (w Work) do() {
	if w.Spins > 0 {
		runtime.KeepAlive(spin(w.Spins))
	}
	if w.Sleep > 0 {
		time.Sleep(w.Sleep)
	}
}

// bufSize is the length of a connection's buffer where the setup says nothing else.
const bufSize = 4 << 10

func (s Setup) buffer() []byte {
	if s.Buffer > 0 {
		return make([]byte, s.Buffer)
	}
	return make([]byte, bufSize)
}

// plain says that an engine which only echoes cannot do what the setup asks for.
func (s Setup) plain() error {
	if s.HTTP > 0 || s.Files != "" || s.Work != (Work{}) {
		return fmt.Errorf("engine %s only echoes", s.Engine)
	}
	return nil
}

// spin computes for a number of steps, each of which needs the one before. Preemption may stop it.
//
//go:noinline
func spin(steps int) uint64 {
	x := uint64(steps) | 1
	for range steps {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

// SpinsPerMicrosecond measures how many steps a processor computes in a microsecond when nothing
// disturbs it. All servers of a run get their steps from one measurement.
func SpinsPerMicrosecond() float64 {
	const steps = 100_000
	best := time.Duration(1<<63 - 1)
	for range 50 {
		begin := time.Now()
		runtime.KeepAlive(spin(steps))
		best = min(best, time.Since(begin))
	}
	return steps * float64(time.Microsecond) / float64(max(best, 1))
}
