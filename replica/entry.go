// SPDX-License-Identifier: MIT

package replica

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// skipped returns the pages that the database gains but the transaction does not write: the
// page of SQLite's locks. They are zeros.
func (t *txn) skipped(pages int) (skipped []uint32) {
	if int(t.pages) <= pages {
		return nil
	}
	written := make([]bool, int(t.pages)-pages)
	for _, pgno := range t.pgnos {
		if int(pgno) > pages && pgno <= t.pages {
			written[int(pgno)-pages-1] = true
		}
	}
	for i, w := range written {
		if !w {
			skipped = append(skipped, uint32(pages+i)+1)
		}
	}
	return skipped
}

// A raft entry holds operations, one after the other:
//
//	kind, 1 byte; proposal, 16 bytes; length of the rest, 4 bytes; the rest
//
// Numbers are little endian.
const opHeader = 1 + 16 + 4

const (
	opCluster = 'I' // identity of the cluster, 8 bytes
	opMember  = 'M' // index of the configuration, 8 bytes; the directory of a member, 8 bytes; the member's ID
	opCreate  = 'C' // page size, length of the name, name, pages
	opDelete  = 'D' // database
	opTxn     = 'T' // see txn.encode
	opPart    = 'P' // of a restored file: its number, 16 bytes; offset, 8 bytes; pages
	opSum     = 'V' // a check, 16 bytes; a database, 8 bytes
	opWhole   = 'W' // its number; checksum; page size; the database's name, "" to remove the parts
)

// proposalID identifies an operation: 8 random bytes, chosen when the node starts, and a
// number.
type proposalID [2]uint64

func appendOp(p []byte, kind byte, id proposalID, rest []byte) []byte {
	p = append(p, kind)
	p = binary.LittleEndian.AppendUint64(p, id[0])
	p = binary.LittleEndian.AppendUint64(p, id[1])
	p = binary.LittleEndian.AppendUint32(p, uint32(len(rest)))
	return append(p, rest...)
}

type op struct {
	kind byte
	id   proposalID
	rest []byte
}

var errEntry = errors.New("replica: raft's log has an entry of another version")

// nextOp decodes the first operation of an entry and returns the rest.
func nextOp(p []byte) (o op, tail []byte, err error) {
	if len(p) < opHeader {
		return o, nil, errEntry
	}
	o = op{kind: p[0], id: proposalID{binary.LittleEndian.Uint64(p[1:]), binary.LittleEndian.Uint64(p[9:])}}
	n := uint64(binary.LittleEndian.Uint32(p[17:]))
	if p = p[opHeader:]; n > uint64(len(p)) {
		return o, nil, errEntry
	}
	o.rest = p[:n]
	return o, p[n:], nil
}

// txn is a transaction: the new content of the pages that it changed.
type txn struct {
	db            uint64
	seq           uint64 // the database's number of transactions before
	before, after uint64 // sums of the database
	pageSize      uint32
	pages         uint32 // size of the database after
	pgnos         []uint32
	changes       [][]byte // of each page, see appendChange
	content       [][]byte // of each page; nil but in the result of database.merge
	sums          []uint64 // of the content; nil if they are not known
}

const txnHeader = 4*8 + 3*4

func (t *txn) encode() []byte {
	size := txnHeader + 8*len(t.pgnos)
	for _, change := range t.changes {
		size += len(change)
	}
	p := make([]byte, 0, size)
	for _, v := range []uint64{t.db, t.seq, t.before, t.after} {
		p = binary.LittleEndian.AppendUint64(p, v)
	}
	for _, v := range []uint32{t.pageSize, t.pages, uint32(len(t.pgnos))} {
		p = binary.LittleEndian.AppendUint32(p, v)
	}
	for i, v := range t.pgnos {
		p = binary.LittleEndian.AppendUint32(p, v)
		p = binary.LittleEndian.AppendUint32(p, uint32(len(t.changes[i])))
	}
	for _, change := range t.changes {
		p = append(p, change...)
	}
	return p
}

// decodeTxn decodes the output of encode. The transaction refers to p.
func decodeTxn(p []byte) (*txn, error) {
	if len(p) < txnHeader {
		return nil, errEntry
	}
	t := &txn{db: binary.LittleEndian.Uint64(p), seq: binary.LittleEndian.Uint64(p[8:]),
		before: binary.LittleEndian.Uint64(p[16:]), after: binary.LittleEndian.Uint64(p[24:]),
		pageSize: binary.LittleEndian.Uint32(p[32:]), pages: binary.LittleEndian.Uint32(p[36:])}
	n := uint64(binary.LittleEndian.Uint32(p[40:]))
	p = p[txnHeader:]
	size := t.pageSize
	if size < 512 || size > 65536 || size&(size-1) != 0 || n == 0 || 8*n > uint64(len(p)) || t.pages == 0 {
		return nil, errEntry
	}
	t.pgnos, t.changes = make([]uint32, n), make([][]byte, n)
	rest := p[8*n:]
	for i := range t.pgnos {
		t.pgnos[i] = binary.LittleEndian.Uint32(p[8*i:])
		length := binary.LittleEndian.Uint32(p[8*i+4:])
		if t.pgnos[i] == 0 || length > size || uint64(length) > uint64(len(rest)) {
			return nil, errEntry
		}
		t.changes[i], rest = rest[:length:length], rest[length:]
	}
	if len(rest) > 0 {
		return nil, errEntry
	}
	return t, nil
}

// appendChange appends the difference between two contents of a page: runs of changed bytes,
// each with its distance from the end of the run before, and its length. If that would be
// more than half a page, the change is the page itself. The change is otherwise shorter than a
// page, so the length tells the form.
func appendChange(p, old, page []byte) []byte {
	const chunk = 256
	differ := func(i int) bool {
		return i < len(page) && binary.LittleEndian.Uint64(old[i:]) != binary.LittleEndian.Uint64(page[i:])
	}
	begin, done := len(p), 0
	for i := 0; i < len(page); {
		if i%chunk == 0 && bytes.Equal(old[i:i+chunk], page[i:i+chunk]) {
			i += chunk
			continue
		}
		if !differ(i) {
			i += 8
			continue
		}
		end := i + 8
		for differ(end) || differ(end+8) {
			end += 8
		}
		p = binary.AppendUvarint(p, uint64(i-done))
		p = binary.AppendUvarint(p, uint64(end-i))
		p = append(p, page[i:end]...)
		if len(p)-begin > len(page)/2 {
			return append(p[:begin], page...)
		}
		i, done = end, end
	}
	return p
}

// applyChange applies the output of appendChange that is not a whole page.
func applyChange(page, change []byte) error {
	for at := uint64(0); len(change) > 0; {
		skip, n := binary.Uvarint(change)
		if n <= 0 || skip > uint64(len(page)) {
			return errEntry
		}
		length, m := binary.Uvarint(change[n:])
		if change = change[max(n+m, 0):]; m <= 0 || length > uint64(len(change)) || at+skip+length > uint64(len(page)) {
			return errEntry
		}
		at += skip
		copy(page[at:], change[:length])
		at, change = at+length, change[length:]
	}
	return nil
}
