// SPDX-License-Identifier: MIT

package engine

import (
	"bufio"
	"errors"
	"io"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/ringside-io/ringside/appendlog"
)

// Log takes records that must survive a power cut.
type Log interface {
	// Append returns when the record is durable. The memory is the caller's again then. Any
	// number of goroutines may append at once.
	Append(record []byte) error
	// Close ends the log. No append may be in flight.
	Close() error
}

// Logger is an engine that keeps logs.
type Logger interface {
	// OpenLog begins a log in an empty directory.
	OpenLog(dir string) (Log, error)
	// ReadLog yields the records of a closed log in their order, each valid until the next; an
	// error is the last thing yielded. All records must have the given size.
	ReadLog(dir string, size int) iter.Seq2[[]byte, error]
}

// NameOSMutex is the name of [OSMutex].
const NameOSMutex = "os-mutex"

// logName is the file of a log that is one file.
const logName = "log"

// OpenLog creates a file with a group commit, as a program would write it by hand.
func (OS) OpenLog(dir string) (Log, error) {
	f, err := openLogFile(dir)
	if err != nil {
		return nil, err
	}
	return &groupCommit{file: f, fd: f.Fd()}, nil
}

// ReadLog reads the file.
func (OS) ReadLog(dir string, size int) iter.Seq2[[]byte, error] { return readLogFile(dir, size) }

// OSMutex appends behind a mutex: one goroutine at a time writes its record and syncs the file.
// In everything else it is [OS].
type OSMutex struct{ OS }

// Name returns "os-mutex".
func (OSMutex) Name() string { return NameOSMutex }

// OpenLog creates the file.
func (OSMutex) OpenLog(dir string) (Log, error) {
	f, err := openLogFile(dir)
	if err != nil {
		return nil, err
	}
	return &mutexLog{file: f, fd: f.Fd()}, nil
}

func openLogFile(dir string) (*os.File, error) {
	return os.OpenFile(filepath.Join(dir, logName), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

// groupCommit is a plain leader/follower group commit. The first goroutine of a group waits for the
// group before to be durable, yields twice so that others join, writes the records of all into zeros
// that were written ahead, and syncs.
type groupCommit struct {
	file *os.File
	fd   uintptr

	mu    sync.Mutex
	next  *commitGroup // that goroutines join
	spare []byte

	writing    sync.Mutex // held by the goroutine that writes; guards what follows
	off, ahead int64
	last       int // records of the group before
}

type commitGroup struct {
	buf  []byte
	n    int
	err  error
	done chan struct{}
}

func (l *groupCommit) Append(record []byte) error {
	l.mu.Lock()
	if l.next == nil {
		l.next = &commitGroup{buf: l.spare[:0], done: make(chan struct{})}
		l.spare = nil
	}
	g := l.next
	g.buf = append(g.buf, record...)
	g.n++
	first := g.n == 1
	l.mu.Unlock()
	if !first {
		<-g.done
		return g.err
	}
	l.writing.Lock()
	if l.last > 1 { // a goroutine that is alone need not wait for others
		runtime.Gosched()
		runtime.Gosched()
	}
	l.mu.Lock()
	l.next = nil
	l.mu.Unlock()
	g.err = l.write(g.buf)
	l.last = g.n
	l.mu.Lock()
	l.spare = g.buf
	l.mu.Unlock()
	l.writing.Unlock()
	close(g.done)
	return g.err
}

// zeros are written ahead of the records.
var zeros [1 << 20]byte

func (l *groupCommit) write(p []byte) error {
	if l.off+int64(len(p)) > l.ahead {
		if _, err := l.file.WriteAt(zeros[:], l.ahead); err != nil {
			return err
		}
		l.ahead += int64(len(zeros))
	}
	if _, err := l.file.WriteAt(p, l.off); err != nil {
		return err
	}
	l.off += int64(len(p))
	return datasync(l.file, l.fd)
}

func (l *groupCommit) Close() error {
	err := l.file.Truncate(l.off)
	return errors.Join(err, l.file.Close())
}

type mutexLog struct {
	mu   sync.Mutex
	file *os.File
	fd   uintptr
}

func (l *mutexLog) Append(record []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.file.Write(record); err != nil {
		return err
	}
	return datasync(l.file, l.fd)
}

func (l *mutexLog) Close() error { return l.file.Close() }

func readLogFile(dir string, size int) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		f, err := os.Open(filepath.Join(dir, logName))
		if err != nil {
			yield(nil, err)
			return
		}
		defer f.Close()
		in, record := bufio.NewReaderSize(f, 1<<20), make([]byte, size)
		for {
			if _, err := io.ReadFull(in, record); err != nil {
				if err != io.EOF {
					yield(nil, err)
				}
				return
			}
			if !yield(record, nil) {
				return
			}
		}
	}
}

// OpenLog opens an [appendlog.Log], which syncs once for all goroutines that wait.
func (Ringside) OpenLog(dir string) (Log, error) {
	l, err := appendlog.Open(dir, appendlog.Options{})
	if err != nil {
		return nil, err
	}
	return ringsideLog{l}, nil
}

// ReadLog reads with [appendlog.Read].
func (Ringside) ReadLog(dir string, _ int) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for r, err := range appendlog.Read(dir, appendlog.ReadOptions{}) {
			if !yield(r.Data, err) {
				return
			}
		}
	}
}

type ringsideLog struct{ log *appendlog.Log }

func (l ringsideLog) Append(record []byte) error {
	_, err := l.log.Append(record)
	return err
}

func (l ringsideLog) Close() error { return l.log.Close() }
