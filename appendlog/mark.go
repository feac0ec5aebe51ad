// SPDX-License-Identifier: MIT

package appendlog

import (
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"sync"
	"time"
)

// The end mark is a file beside the segments. It records how far the log is durable. It
// is written, but not synced, after each sync of the segment. It is synced when the log
// is opened, trimmed and closed. After a crash of the process it is exact. After a power
// cut it may be old, and its end then lies before the durable end.
const (
	markSuffix = "end"
	markMagic  = "RSAPMARK"
	// markSlots slots are written in turn, so that a reader finds one of them whole. Both
	// are written when the file is created, and the file gets its name afterwards. So a
	// slot that is not whole was damaged.
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
	return m, m.log != 0 && m.end.Seq-1 < maxSeq && m.end.Segment < maxIndex
}

// markState is what a mark file proves.
type markState int

const (
	markGone markState = iota // there is no file
	markBad                   // no slot is whole
	markHalf                  // one slot is damaged: it may have been the newer one
	markWhole
)

// flaw returns why a mark does not prove how far the log was durable, "" if it does.
func (s markState) flaw() string {
	return [...]string{noMark, noMark, halfMark, ""}[s]
}

// readMark returns the newer slot of a mark file that another process may write meanwhile.
func readMark(f segmentFile) (m endMark, state markState, err error) {
	const tries = 3 // a read beside a write may find half of a slot
	for i := range tries {
		if i > 0 {
			time.Sleep(time.Millisecond)
		}
		b := make([]byte, markSlots*markSlotSize)
		n, err := f.ReadAt(b, 0)
		if err != nil && err != io.EOF {
			return m, markBad, err
		}
		if m, state = decodeSlots(b[:n]); state == markWhole {
			break
		}
	}
	return m, state, nil
}

// decodeSlots returns the newer slot of the content of a mark file.
func decodeSlots(b []byte) (m endMark, state markState) {
	state = markBad
	whole := 0
	for i := range markSlots {
		if at := i * markSlotSize; at < len(b) {
			if s, ok := decodeMark(b[at:]); ok && s.gen%markSlots == uint64(i) {
				whole++
				if s.gen > m.gen {
					m = s
				}
			}
		}
	}
	switch {
	case whole == markSlots:
		state = markWhole
	case whole > 0 && m.gen == 1 && zero(b[:markSlotSize]):
		state = markWhole // earlier versions wrote one slot at first
	case whole > 0:
		state = markHalf
	}
	return m, state
}

// findMark reads the mark of a log without opening the log.
func findMark(st segmentStore, prefix string) (m endMark, state markState, err error) {
	f, err := st.Open(prefix+markSuffix, false)
	if errors.Is(err, fs.ErrNotExist) {
		return m, markGone, nil
	} else if err != nil {
		return m, markGone, err
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
	state markState
	endMark
	buf [markSize]byte
}

// open opens and locks the mark, if there is one.
func (m *markFile) open() (err error) {
	if m.file == nil {
		m.file, err = m.store.Open(m.name, true)
		if errors.Is(err, fs.ErrNotExist) {
			m.file, m.state = nil, markGone
			return nil
		} else if err != nil {
			m.file = nil
			return err
		}
		if err := lock(m.file, m.store.Path(m.name)); err != nil {
			return err
		}
	}
	m.endMark, m.state, err = readMark(m.file)
	return err
}

// create replaces the file by a new one with both slots written, and locks it. A mark
// under its name is whole, so one that is not was damaged. The caller holds mu or is Open.
func (m *markFile) create() error {
	b := make([]byte, markSlots*markSlotSize)
	for range markSlots {
		m.gen++
		m.encode(b[m.gen%markSlots*markSlotSize:])
	}
	if err := writeNew(m.store, m.name+newSuffix, b); err != nil {
		return err
	}
	if m.file != nil {
		m.file.Close()
		m.file = nil
	}
	if err := m.store.Rename(m.name+newSuffix, m.name); err != nil {
		return err
	}
	if err := m.store.Sync(); err != nil {
		return err
	}
	f, err := m.store.Open(m.name, true)
	if err != nil {
		return err
	}
	m.file, m.state = f, markWhole
	return lock(f, m.store.Path(m.name))
}

// advance moves the end, without a sync. A failed write is ignored: the end in the mark
// then lies before the durable end.
func (m *markFile) advance(end Position) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.end = end
	if m.file != nil { // nil after a failed create, which ended Trim only
		_ = m.write()
	}
}

// write writes the mark to the next slot. The caller holds mu.
func (m *markFile) write() error {
	m.gen++
	m.encode(m.buf[:])
	return writeFull(m.file, m.buf[:], int64(m.gen%markSlots)*markSlotSize)
}

// save changes the mark and makes it durable. If the mark was deleted or damaged, save
// creates it again.
func (m *markFile) save(change func(*endMark)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(&m.endMark)
	if m.file == nil || m.state != markWhole || m.file.Check() != nil {
		return m.create()
	}
	if err := m.write(); err != nil {
		return err
	}
	return m.file.Sync(true)
}

func (m *markFile) close() error {
	if m.file == nil {
		return nil
	}
	return m.file.Close()
}
