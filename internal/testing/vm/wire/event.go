// SPDX-License-Identifier: MIT

package wire

import (
	"bytes"
	"encoding/json"
	"io"
	"sync"
	"time"
)

// Kind is the kind of an Event.
type Kind string

// The events of a run, in the order they come: one Boot, a Start and an End
// for each job, one Done. Fatal replaces the rest when the guest gives up.
const (
	Boot  Kind = "boot"
	Start Kind = "start"
	End   Kind = "end"
	Done  Kind = "done"
	Fatal Kind = "fatal"
)

// Event is the content of a marker.
type Event struct {
	Kind Kind
	// Job is the index in Plan.Jobs, for Start and End.
	Job int `json:",omitempty"`
	// Exit is the exit status of an ended job, -1 if it has none.
	Exit int `json:",omitempty"`
	// Note is the reason why a job has no exit status, or why the guest gave up.
	Note string `json:",omitempty"`
	// Took is the duration of an ended job by the guest's clock.
	Took time.Duration `json:",omitempty"`
	// Guest comes with Boot.
	Guest *Guest `json:",omitempty"`
}

// Guest describes the booted machine.
type Guest struct {
	// Release and Machine are uname's.
	Release, Machine string
	CPUs             int
	// Mounts are the file systems programs may write to.
	Mounts []Mount
	// Notes are failed preparations that do not end the run.
	Notes []string `json:",omitempty"`
}

// Mount is a file system of the guest.
type Mount struct {
	Path, Type string
	// Direct reports whether an O_DIRECT write succeeded on it.
	Direct bool
}

func prefix(nonce string) []byte {
	return []byte("@@ringside " + nonce + " ")
}

// Writer mixes program output and markers on one stream; every marker begins
// on a line of its own. Safe for concurrent use.
type Writer struct {
	mu      sync.Mutex
	out     io.Writer
	prefix  []byte
	midLine bool
}

// NewWriter returns a Writer on out whose markers carry the nonce.
func NewWriter(out io.Writer, nonce string) *Writer {
	return &Writer{out: out, prefix: prefix(nonce)}
}

// Write passes program output on.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(p) > 0 {
		w.midLine = p[len(p)-1] != '\n'
	}
	return w.out.Write(p)
}

// Event writes a marker. It first ends a line of output that has no newline.
func (w *Writer) Event(e Event) error {
	body, err := json.Marshal(e)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var line bytes.Buffer
	if w.midLine {
		line.WriteByte('\n')
	}
	line.Write(w.prefix)
	line.Write(body)
	line.WriteByte('\n')
	w.midLine = false
	_, err = w.out.Write(line.Bytes())
	return err
}
