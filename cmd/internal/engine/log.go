// SPDX-License-Identifier: MIT

package engine

import (
	"bufio"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"github.com/ringside-io/ringside/appendlog"
)

// Log stores records that must survive a power cut.
type Log interface {
	// Append returns when the record is durable. It does not use the memory afterwards. Any number
	// of goroutines may append at once.
	Append(record []byte) error
	// Close closes the log. No append may be in flight.
	Close() error
}

// Logger is an engine with logs.
type Logger interface {
	// OpenLog creates a log in an empty directory.
	OpenLog(dir string) (Log, error)
	// ReadLog yields the records of a closed log in order. Each record is valid until the next. An
	// error ends the sequence.
	ReadLog(dir string) iter.Seq2[[]byte, error]
}

// NameOSMutex is the name of [OSMutex].
const NameOSMutex = "os-mutex"

// logName is the name of a log that is a single file.
const logName = "log"

// OpenLog creates a file with a hand-written group commit.
func (OS) OpenLog(dir string) (Log, error) {
	f, err := openLogFile(dir)
	if err != nil {
		return nil, err
	}
	return &groupCommit{file: f, fd: f.Fd()}, nil
}

// ReadLog reads the file, up to the first record that does not check.
func (OS) ReadLog(dir string) iter.Seq2[[]byte, error] { return readLogFile(dir) }

// OSMutex appends behind a mutex: one goroutine at a time writes its record and syncs the file.
// Otherwise it is the same as [OS].
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

// A record in a file begins with its length and the checksum of its payload, both little-endian. The
// checksum starts from the inverted length, so that zeros are no record.
const logHeader = 8

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func logChecksum(record []byte) uint32 {
	return crc32.Update(^uint32(len(record)), castagnoli, record)
}

func appendLogRecord(b, record []byte, sum uint32) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(record)))
	b = binary.LittleEndian.AppendUint32(b, sum)
	return append(b, record...)
}

// groupCommit is a plain leader/follower group commit. The first goroutine of a group is the
// leader. It waits until the group before is durable, and yields twice so that others can join.
// Then it writes all records over preallocated zeros, and syncs.
type groupCommit struct {
	file *os.File
	fd   uintptr

	mu    sync.Mutex
	next  *commitGroup // joined by goroutines
	spare []byte

	writing    sync.Mutex // held by the leader; guards the following fields
	off, ahead int64
	last       int   // records of the group before
	err        error // after a failure it is unknown what the disk has
}

type commitGroup struct {
	buf  []byte
	n    int
	err  error
	done chan struct{}
}

func (l *groupCommit) Append(record []byte) error {
	sum := logChecksum(record)
	l.mu.Lock()
	if l.next == nil {
		l.next = &commitGroup{buf: l.spare[:0], done: make(chan struct{})}
		l.spare = nil
	}
	g := l.next
	g.buf = appendLogRecord(g.buf, record, sum)
	g.n++
	first := g.n == 1
	l.mu.Unlock()
	if !first {
		<-g.done
		return g.err
	}
	l.writing.Lock()
	if l.last > 1 { // a single goroutine does not wait for others
		runtime.Gosched()
		runtime.Gosched()
	}
	l.mu.Lock()
	l.next = nil
	l.mu.Unlock()
	if l.err == nil {
		l.err = l.write(g.buf)
	}
	g.err = l.err
	l.last = g.n
	l.mu.Lock()
	l.spare = g.buf
	l.mu.Unlock()
	l.writing.Unlock()
	close(g.done)
	return g.err
}

// zeros are written ahead of the records, to preallocate the file.
var zeros [1 << 20]byte

func (l *groupCommit) write(p []byte) error {
	for l.off+int64(len(p)) > l.ahead { // a group may be longer than the zeros
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
	buf  []byte
	err  error
}

func (l *mutexLog) Append(record []byte) error {
	sum := logChecksum(record)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.buf = appendLogRecord(l.buf[:0], record, sum)
		if _, l.err = l.file.Write(l.buf); l.err == nil {
			l.err = datasync(l.file, l.fd)
		}
	}
	return l.err
}

func (l *mutexLog) Close() error { return l.file.Close() }

func readLogFile(dir string) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		f, err := os.Open(filepath.Join(dir, logName))
		if err != nil {
			yield(nil, err)
			return
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			yield(nil, err)
			return
		}
		readLogRecords(bufio.NewReaderSize(f, 1<<20), info.Size(), yield)
	}
}

// readLogRecords yields the records of a file of the given size, up to the first that is incomplete or
// does not check. That is the end of the log: what follows was being written when the program or the
// machine stopped.
func readLogRecords(in io.Reader, size int64, yield func([]byte, error) bool) {
	var header [logHeader]byte
	var record []byte
	for size >= logHeader {
		if _, err := io.ReadFull(in, header[:]); err != nil {
			yield(nil, err)
			return
		}
		n := int64(binary.LittleEndian.Uint32(header[:]))
		if size -= logHeader + n; size < 0 {
			return
		}
		record = slices.Grow(record[:0], int(n))[:n]
		if _, err := io.ReadFull(in, record); err != nil {
			yield(nil, err)
			return
		}
		if logChecksum(record) != binary.LittleEndian.Uint32(header[4:]) || !yield(record, nil) {
			return
		}
	}
}

// OpenLog opens an [appendlog.Log], which syncs once for all waiting goroutines.
func (Ringside) OpenLog(dir string) (Log, error) {
	l, err := appendlog.Open(dir, appendlog.Options{})
	if err != nil {
		return nil, err
	}
	return ringsideLog{l}, nil
}

// ReadLog reads with [appendlog.Read].
func (Ringside) ReadLog(dir string) iter.Seq2[[]byte, error] {
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
