// SPDX-License-Identifier: MIT

package raftlog

import (
	"encoding/binary"
	"errors"
	"math"
	"time"

	"github.com/hashicorp/raft"
)

// The kinds of records.
const (
	kindEntry  = 'E'
	kindRemove = 'R'
	kindSet    = 'S'
)

// entryHeader is the size of an entry before its extensions: index, term, type, time, their size.
const entryHeader = 8 + 8 + 1 + 8 + 4

func encode(l *raft.Log) []byte {
	p := make([]byte, 0, 1+entryHeader+len(l.Extensions)+len(l.Data))
	p = append(p, kindEntry)
	p = binary.LittleEndian.AppendUint64(p, l.Index)
	p = binary.LittleEndian.AppendUint64(p, l.Term)
	p = append(p, byte(l.Type))
	at := int64(math.MinInt64)
	if !l.AppendedAt.IsZero() {
		at = l.AppendedAt.UnixNano()
	}
	p = binary.LittleEndian.AppendUint64(p, uint64(at))
	p = binary.LittleEndian.AppendUint32(p, uint32(len(l.Extensions)))
	p = append(p, l.Extensions...)
	return append(p, l.Data...)
}

// decode decodes the output of encode. The entry does not refer to p.
func decode(p []byte, l *raft.Log) error {
	data, err := decodeHead(p, l)
	if err == nil {
		l.Data = append([]byte{}, data...)
	}
	return err
}

// decodeHead decodes all but the data, which it returns as a part of p.
func decodeHead(p []byte, l *raft.Log) (data []byte, err error) {
	if len(p) < 1+entryHeader || p[0] != kindEntry {
		return nil, errors.New("raftlog: not an entry")
	}
	p = p[1:]
	*l = raft.Log{Index: binary.LittleEndian.Uint64(p), Term: binary.LittleEndian.Uint64(p[8:]), Type: raft.LogType(p[16])}
	if at := int64(binary.LittleEndian.Uint64(p[17:])); at != math.MinInt64 {
		l.AppendedAt = time.Unix(0, at)
	}
	n := binary.LittleEndian.Uint32(p[25:])
	p = p[entryHeader:]
	if uint64(n) > uint64(len(p)) {
		return nil, errors.New("raftlog: not an entry")
	}
	if n > 0 {
		l.Extensions = append([]byte(nil), p[:n]...)
	}
	return p[n:], nil
}

func encodeSet(key string, value []byte) []byte {
	p := binary.AppendUvarint([]byte{kindSet}, uint64(len(key)))
	return append(append(p, key...), value...)
}
