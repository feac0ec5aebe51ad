// SPDX-License-Identifier: MIT

package appendlog

import (
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"sync"
)

// The end mark is a file beside the segments. It records how far the log is durable. It
// is written, but not synced, after each sync of the segment. It is synced when the log
// is opened, trimmed and closed. After a crash of the process it is exact. After a power
// cut it may be old, and its end then lies before the durable end.
const (
	markSuffix = "end"
	markMagic  = "RSAPMARK"
	// markSlots slots are written in turn, so that a reader, or a torn write, finds
	// one of them whole.
	markSlots    = 2
	markSlotSize = 512
	markSize     = 80
	markVersion  = 1
	markClean    = 1
)

// endMark is the content of the file.
type endMark struct {
	gen   uint64 // counts the writes
	log   uint64 // ID of the log
	clean bool   // the log was closed; end is its end
	first uint64 // index of the oldest segment that was not trimmed, 0 before there is one
	end   Position
}

func (m endMark) encode(b []byte) {
	clear(b[:markSize])
	copy(b, markMagic)
	binary.LittleEndian.PutUint32(b[8:], markVersion)
	if m.clean {
		binary.LittleEndian.PutUint32(b[12:], markClean)
	}
	binary.LittleEndian.PutUint64(b[16:], m.gen)
	binary.LittleEndian.PutUint64(b[24:], m.log)
	binary.LittleEndian.PutUint64(b[32:], m.first)
	binary.LittleEndian.PutUint64(b[40:], m.end.Segment)
	binary.LittleEndian.PutUint64(b[48:], uint64(m.end.Offset))
	binary.LittleEndian.PutUint64(b[56:], m.end.Seq)
	binary.LittleEndian.PutUint32(b[markSize-4:], checksum(b[:markSize-4]))
}

func decodeMark(b []byte) (m endMark, ok bool) {
	if len(b) < markSize || string(b[:8]) != markMagic || binary.LittleEndian.Uint32(b[8:]) != markVersion ||
		checksum(b[:markSize-4]) != binary.LittleEndian.Uint32(b[markSize-4:]) {
		return m, false
	}
	m.clean = binary.LittleEndian.Uint32(b[12:])&markClean != 0
	m.gen = binary.LittleEndian.Uint64(b[16:])
	m.log = binary.LittleEndian.Uint64(b[24:])
	m.first = binary.LittleEndian.Uint64(b[32:])
	m.end.Segment = binary.LittleEndian.Uint64(b[40:])
	m.end.Offset = int64(binary.LittleEndian.Uint64(b[48:]))
	m.end.Seq = binary.LittleEndian.Uint64(b[56:])
	return m, m.log != 0 && m.end.Seq != 0
}

// readMark returns the newer slot of a mark file. It returns false if no slot is whole.
func readMark(f segmentFile) (m endMark, ok bool, err error) {
	b := make([]byte, markSlots*markSlotSize)
	n, err := f.ReadAt(b, 0)
	if err != nil && err != io.EOF {
		return m, false, err
	}
	for i := range markSlots {
		if at := i * markSlotSize; at < n {
			if s, whole := decodeMark(b[at:n]); whole && (!ok || s.gen > m.gen) {
				m, ok = s, true
			}
		}
	}
	return m, ok, nil
}

// findMark reads the mark of a log without opening the log.
func findMark(st segmentStore, prefix string) (m endMark, ok bool, err error) {
	f, err := st.Open(prefix+markSuffix, false)
	if errors.Is(err, fs.ErrNotExist) {
		return m, false, nil
	} else if err != nil {
		return m, false, err
	}
	defer f.Close()
	return readMark(f)
}

// markFile is the mark of an open log. Leaders and Trim write it.
type markFile struct {
	mu    sync.Mutex
	store segmentStore
	name  string
	file  segmentFile // nil until it is opened or created
	endMark
	buf [markSize]byte
}

// open opens and locks the mark. If there is none, it creates it if create is set, and
// otherwise does nothing.
func (m *markFile) open(create bool) (found bool, err error) {
	if m.file == nil {
		m.file, err = m.store.Open(m.name, true)
		if errors.Is(err, fs.ErrNotExist) && create {
			m.file, err = m.store.Create(m.name)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		} else if err != nil {
			return false, err
		}
		if err := lock(m.file, m.store.Path(m.name)); err != nil {
			return false, err
		}
	}
	m.endMark, found, err = readMark(m.file)
	return found, err
}

// ensure creates the file when there is none; save fills it.
func (m *markFile) ensure() error {
	if m.file != nil {
		return nil
	}
	f, err := m.store.Create(m.name)
	if err != nil {
		return err
	}
	m.file = f
	return lock(f, m.store.Path(m.name))
}

// advance moves the end, without a sync. A failed write is ignored: the end in the mark
// then lies before the durable end.
func (m *markFile) advance(end Position) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.end = end
	_ = m.write()
}

// write writes the mark to the next slot. The caller holds mu.
func (m *markFile) write() error {
	m.gen++
	m.encode(m.buf[:])
	return writeFull(m.file, m.buf[:], int64(m.gen%markSlots)*markSlotSize)
}

// save changes the mark and makes it durable. If the mark was deleted meanwhile, save
// creates it again.
func (m *markFile) save(change func(*endMark)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(&m.endMark)
	if m.file.Check() != nil {
		f, err := m.store.Create(m.name)
		if err != nil {
			return err
		}
		m.file.Close()
		m.file = f
		if err := lock(f, m.store.Path(m.name)); err != nil {
			return err
		}
	}
	size, err := m.file.Size()
	if err == nil {
		err = m.write()
	}
	if err == nil {
		err = m.file.Sync(true)
	}
	if err == nil && size < markSize { // it is new
		err = m.store.Sync()
	}
	return err
}

func (m *markFile) close() error {
	if m.file == nil {
		return nil
	}
	return m.file.Close()
}
