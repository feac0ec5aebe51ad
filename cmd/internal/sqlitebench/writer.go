// SPDX-License-Identifier: MIT

package sqlitebench

import (
	"os"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// What a program that has nothing to do with the databases writes beside them, in bytes: in a second,
// at a time, and before it begins again at the start of its file.
const (
	WriterRate  = 32 << 20
	writerChunk = 256 << 10
	writerSpan  = 64 << 20
)

// writer overwrites a file at a steady rate, without syncs: the kernel writes it when it likes, or
// when a sync of the whole file system tells it to.
type writer struct {
	file  *os.File
	chunk []byte
	off   int64
	next  time.Time
}

func newWriter(path string) (*writer, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	w := &writer{file: f, chunk: make([]byte, writerChunk), next: time.Now()}
	for i := range w.chunk {
		w.chunk[i] = byte(i * i >> 3)
	}
	return w, nil
}

var _ measure.Op = (*writer)(nil).write

// write writes a chunk and waits for the time of the next. One that is late makes up for at most a
// second.
func (w *writer) write() (int, error) {
	if _, err := w.file.WriteAt(w.chunk, w.off); err != nil {
		return 0, err
	}
	w.off = (w.off + writerChunk) % writerSpan
	w.next = w.next.Add(time.Second * writerChunk / WriterRate)
	wait := time.Until(w.next)
	if wait < -time.Second {
		w.next = time.Now()
	}
	time.Sleep(wait)
	return 0, nil
}
