// SPDX-License-Identifier: MIT

package datafile

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// UnitSize is the number of bytes that carry one stamp and one checksum. Sizes, block sizes and
// offsets are multiples of it.
const UnitSize = 4096

const (
	stampSeed   = 0
	stampOffset = 8
	stampSum    = 16
	payload     = 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// MismatchError reports content that differs from the written content.
type MismatchError struct {
	// Offset is the expected offset of the unit in the file, in bytes.
	Offset int64
	// What describes the wrong part and the value found.
	What string
}

// Error returns the offset and the wrong part.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("wrong content at offset %d: %s", e.Offset, e.What)
}

// Fill writes the content of the file with this seed at offset off into p. Both len(p) and off are
// multiples of [UnitSize].
func Fill(p []byte, seed uint64, off int64) {
	for ; len(p) >= UnitSize; p, off = p[UnitSize:], off+UnitSize {
		fillUnit(p[:UnitSize], seed, off)
	}
}

func fillUnit(unit []byte, seed uint64, off int64) {
	state := seed ^ uint64(off)*0x9e3779b97f4a7c15
	for i := 0; i < UnitSize; i += 8 {
		binary.LittleEndian.PutUint64(unit[i:], SplitMix(&state))
	}
	binary.LittleEndian.PutUint64(unit[stampSeed:], seed)
	binary.LittleEndian.PutUint64(unit[stampOffset:], uint64(off))
	binary.LittleEndian.PutUint32(unit[stampSum:], crc32.Checksum(unit[payload:], castagnoli))
}

// SplitMix advances the state and returns the next value of the SplitMix64 sequence.
func SplitMix(state *uint64) uint64 {
	*state += 0x9e3779b97f4a7c15
	z := *state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// CheckStamps checks the seed and offset of the first and the last unit in p, which was read at
// offset off. It is cheap enough for every read: no allocation, two cache lines.
func CheckStamps(p []byte, seed uint64, off int64) error {
	if err := checkStamp(p, seed, off); err != nil {
		return err
	}
	last := len(p) - UnitSize
	return checkStamp(p[last:], seed, off+int64(last))
}

func checkStamp(unit []byte, seed uint64, off int64) error {
	if got := binary.LittleEndian.Uint64(unit[stampOffset:]); got != uint64(off) {
		return &MismatchError{Offset: off, What: fmt.Sprintf("bytes of offset %d", got)}
	}
	if got := binary.LittleEndian.Uint64(unit[stampSeed:]); got != seed {
		return &MismatchError{Offset: off, What: fmt.Sprintf("seed %#x, not %#x", got, seed)}
	}
	return nil
}

// Check checks stamps and checksums of all units in p, which was read at offset off.
func Check(p []byte, seed uint64, off int64) error {
	for ; len(p) >= UnitSize; p, off = p[UnitSize:], off+UnitSize {
		if err := checkStamp(p, seed, off); err != nil {
			return err
		}
		want := binary.LittleEndian.Uint32(p[stampSum:])
		if got := crc32.Checksum(p[payload:UnitSize], castagnoli); got != want {
			return &MismatchError{Offset: off, What: fmt.Sprintf("checksum %#x, not %#x", got, want)}
		}
	}
	return nil
}
