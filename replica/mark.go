// SPDX-License-Identifier: MIT

package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"os"
	"sync"
)

// logMark is a file beside raft's log that tells how far the log has come. It is written after each write of
// the log, without a sync: it may be behind the log, and is never ahead. Before entries are removed
// at the end, it is set back durably.
type logMark struct {
	directory uint64
	disk      *disk
	log       *slog.Logger

	mu     sync.Mutex
	f      *os.File
	state  markState
	failed bool
}

type markState struct {
	last, lastTerm uint64 // the last entry
	term           uint64 // raft's term
}

const markSize = 5*8 + 4 // version, directory, state, checksum

func openMark(path string, directory uint64, d *disk, log *slog.Logger) (*logMark, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	m := &logMark{directory: directory, disk: d, log: log, f: f}
	var p [markSize]byte
	if _, err := f.ReadAt(p[:], 0); err != nil && err != io.EOF {
		return nil, errors.Join(err, f.Close())
	} else if err == io.EOF {
		return m, nil // new, or of a power cut
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(p[8*i:]) }
	if binary.LittleEndian.Uint32(p[40:]) != crc32.Checksum(p[:40], castagnoli) || word(0) != 1 {
		log.Warn("replica: the file that tells how far raft's log has come is damaged, and begins anew", "file", path)
		return m, nil
	}
	if word(1) != directory {
		return nil, errors.Join(fmt.Errorf("replica: %s belongs to another directory: %s", path, rejoin), f.Close())
	}
	m.state = markState{word(2), word(3), word(4)}
	return m, nil
}

// note changes the state. If it cannot be written, it stays behind the log.
func (m *logMark) note(change func(*markState)) error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.state
	if change(&m.state); m.state == old && !m.failed {
		return nil
	}
	p := binary.LittleEndian.AppendUint64(nil, 1)
	for _, v := range []uint64{m.directory, m.state.last, m.state.lastTerm, m.state.term} {
		p = binary.LittleEndian.AppendUint64(p, v)
	}
	_, err := m.f.WriteAt(binary.LittleEndian.AppendUint32(p, crc32.Checksum(p, castagnoli)), 0)
	if err != nil && !m.failed {
		m.log.Warn("replica: how far raft's log has come cannot be recorded", "error", err)
	}
	m.failed = err != nil
	return err
}

// setBack records durably that the entries from low on are removed.
func (m *logMark) setBack(low uint64) error {
	if m == nil {
		return nil
	}
	changed := false
	err := m.note(func(s *markState) {
		if changed = s.last >= low; changed {
			s.last, s.lastTerm = low-1, 0
		}
	})
	if err == nil && changed {
		err = m.disk.sync(m.f.Name(), m.f.Sync)
	}
	return err
}

func (m *logMark) Close() error {
	if m == nil {
		return nil
	}
	return m.f.Close()
}
