// SPDX-License-Identifier: MIT

// Package walformat has what packages of this repository need of the format of SQLite's write-ahead
// log: https://www.sqlite.org/fileformat2.html#walformat
package walformat

import "encoding/binary"

const (
	HeaderSize      = 32         // bytes of the WAL's header
	FrameHeaderSize = 24         // bytes before the page of a frame
	Magic           = 0x377f0682 // the lowest bit means that checksums are big endian
	Version         = 3007000
)

// FrameSize returns the size of a frame in bytes.
func FrameSize(pageSize int) int64 { return FrameHeaderSize + int64(pageSize) }

// AppendHeader appends the header of a WAL whose checksums are little endian, and returns its
// checksum, with which that of the first frame begins. restarts is how often the WAL was restarted.
func AppendHeader(p []byte, pageSize, restarts uint32, salt [2]uint32) ([]byte, Sum) {
	begin := len(p)
	for _, word := range [...]uint32{Magic, Version, pageSize, restarts, salt[0], salt[1]} {
		p = binary.BigEndian.AppendUint32(p, word)
	}
	sum := Sum{}.Add(p[begin:], false)
	p = binary.BigEndian.AppendUint32(p, sum[0])
	return binary.BigEndian.AppendUint32(p, sum[1]), sum
}

// Sum is the running checksum that chains the frames of a WAL. The header of the WAL's index has one
// too.
type Sum [2]uint32

// Add continues the checksum over a multiple of 8 bytes. The variable that is ready last is added
// last; the other order takes half as long again.
func (c Sum) Add(p []byte, big bool) Sum {
	s0, s1 := c[0], c[1]
	if big {
		for ; len(p) >= 8; p = p[8:] {
			x := binary.BigEndian.Uint64(p)
			s0 = (s0 + uint32(x>>32)) + s1
			s1 = (s1 + uint32(x)) + s0
		}
		return Sum{s0, s1}
	}
	for ; len(p) >= 16; p = p[16:] {
		x, y := binary.LittleEndian.Uint64(p), binary.LittleEndian.Uint64(p[8:])
		s0 = (s0 + uint32(x)) + s1
		s1 = (s1 + uint32(x>>32)) + s0
		s0 = (s0 + uint32(y)) + s1
		s1 = (s1 + uint32(y>>32)) + s0
	}
	if len(p) >= 8 {
		x := binary.LittleEndian.Uint64(p)
		s0 = (s0 + uint32(x)) + s1
		s1 = (s1 + uint32(x>>32)) + s0
	}
	return Sum{s0, s1}
}
