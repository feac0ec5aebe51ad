// SPDX-License-Identifier: MIT

package stress

import (
	"bytes"
	"context"
	"net"
	"time"

	"github.com/ringside-io/ringside/internal/testing/kernelsim"
	"github.com/ringside-io/ringside/reactor"
	"github.com/ringside-io/ringside/ufile"
)

// Environment provides the objects that a scenario uses. Its methods may be called
// concurrently.
type Environment interface {
	Engine() Engine
	// OpenFile opens the file with the given number for reading and writing. The
	// files exist and are full of zeros at first.
	OpenFile(number int) (File, error)
	// Batch reads or writes ranges of files.
	Batch(write bool, ranges []ufile.Range) error
	// Append appends a record to a log.
	Append(p []byte) error
	// Raw returns the descriptor of a file for the engine, which is full of zeros at
	// first.
	Raw() int
	// Pipe makes a pipe whose stream begins with the byte of the given number.
	Pipe(first uint64) (Pipe, error)
	// Dial connects to an echo server.
	Dial(first uint64) (Conn, error)
	// Watch has a descriptor watched, with the given mode.
	Watch(mode int) (Watch, error)
	// Tolerates reports whether an operation may end with an error, because the settings
	// allow such faults.
	Tolerates(err error) bool
	// Broken reports whether an error means that a ring has failed permanently, as the
	// settings allow, or was closed because of that. An operation that ends with
	// [reactor.ErrTaken] may then still be executed at any time, and its memory belongs
	// to the kernel for ever.
	Broken(err error) bool
	// Patience is how long a scenario may last.
	Patience() time.Duration
	// Mend ends the seeded bug, so that all users can continue.
	Mend()
	// Finish closes everything and returns the problems: lost and leaked objects.
	// Contents then returns the final content of files.
	Finish() []string
	Contents(number int) ([]byte, error)
	RawContents() ([]byte, error)
	Records(yield func(p []byte)) error
	// Trace describes the last events.
	Trace() string
}

// Engine has the methods of a [reactor.Reactor] that scenarios use.
type Engine interface {
	Do(op *reactor.Op) reactor.Result
	DoContext(ctx context.Context, op *reactor.Op) reactor.Result
	Queue(op *reactor.Op, fn func(reactor.Result)) (reactor.ID, error)
	Cancel(id reactor.ID) error
}

// File has the methods of a [ufile.File] that scenarios use.
type File interface {
	ReadAt(p []byte, off int64) (int, error)
	ReadAtContext(ctx context.Context, p []byte, off int64) (int, error)
	WriteAt(p []byte, off int64) (int, error)
	WriteAtContext(ctx context.Context, p []byte, off int64) (int, error)
	Close() error
}

// Pipe is a stream whose bytes are numbered: see [Bytes].
type Pipe interface {
	FD() int
	Feed(n int) error // puts the next n bytes into it
	Close() error
}

// Conn is a connection to an echo server.
type Conn interface {
	net.Conn
	CloseWrite() error
}

// Watch is a watched descriptor.
type Watch interface {
	// Poke makes it ready with n bytes more.
	Poke(n int) error
	// Seen waits until all bytes so far have been reported.
	Seen()
	// Change changes how it is watched.
	Change(mode int) error
	// Replace ends the watch while n bytes are being reported, and at once watches
	// another descriptor, with the same number where there are numbers. If kept is
	// true, the old file stays open and is still watched when the new one gets the
	// number. In each case this watch is over.
	Replace(mode, n int, kept bool) (Watch, error)
	// Close ends the watch. No event is reported after it has returned.
	Close() error
}

// Bytes fills p with the bytes of all streams from the given number on.
func Bytes(p []byte, n uint64) { kernelsim.PipeBytes(p, n) }

// differs returns the number of the first wrong byte of a stream, and whether there is
// one.
func differs(p []byte, n uint64) (uint64, bool) {
	var want [256]byte
	for len(p) > 0 {
		part := p[:min(len(p), len(want))]
		Bytes(want[:len(part)], n)
		if !bytes.Equal(part, want[:len(part)]) {
			for i := range part {
				if part[i] != want[i] {
					return n + uint64(i), true
				}
			}
		}
		p, n = p[len(part):], n+uint64(len(part))
	}
	return 0, false
}
