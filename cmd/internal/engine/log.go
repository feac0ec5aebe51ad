// SPDX-License-Identifier: MIT

package engine

import (
	"bufio"
	"io"
	"iter"
	"os"
	"path/filepath"
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

// NameOSEach is the name of [OSEach].
const NameOSEach = "os-each"

// logName is the file of a log that is one file.
const logName = "log"

// OpenLog creates a file to which one goroutine at a time writes a record and syncs it: a log
// behind a mutex.
func (OS) OpenLog(dir string) (Log, error) {
	f, err := openLogFile(dir)
	if err != nil {
		return nil, err
	}
	return &mutexLog{eachLog: *f}, nil
}

// ReadLog reads the file.
func (OS) ReadLog(dir string, size int) iter.Seq2[[]byte, error] { return readLogFile(dir, size) }

// OSEach appends through an [os.File] opened with O_APPEND, without a lock: each goroutine writes
// its record and syncs the file itself. In everything else it is [OS].
type OSEach struct{ OS }

// Name returns "os-each".
func (OSEach) Name() string { return NameOSEach }

// OpenLog creates the file.
func (OSEach) OpenLog(dir string) (Log, error) {
	f, err := openLogFile(dir)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func openLogFile(dir string) (*eachLog, error) {
	f, err := os.OpenFile(filepath.Join(dir, logName), os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	return &eachLog{file: f, fd: f.Fd()}, nil
}

type eachLog struct {
	file *os.File
	fd   uintptr
}

func (l *eachLog) Append(record []byte) error {
	if _, err := l.file.Write(record); err != nil {
		return err
	}
	return datasync(l.file, l.fd)
}

func (l *eachLog) Close() error { return l.file.Close() }

type mutexLog struct {
	mu sync.Mutex
	eachLog
}

func (l *mutexLog) Append(record []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.eachLog.Append(record)
}

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
	return groupLog{l}, nil
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

type groupLog struct{ log *appendlog.Log }

func (l groupLog) Append(record []byte) error {
	_, err := l.log.Append(record)
	return err
}

func (l groupLog) Close() error { return l.log.Close() }
