// SPDX-License-Identifier: MIT

package powercut

import (
	"hash/maphash"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// image is the content of a disk.
type image struct {
	files map[int][]byte
	names map[string]int
	// sector is the number of bytes that are written whole or not at all.
	sector int64
}

func (m *image) clone() *image {
	return &image{files: maps.Clone(m.files), names: maps.Clone(m.names), sector: m.sector}
}

// change applies one operation. Contents are never changed in place, because images
// share them.
func (m *image) change(op Op) {
	switch op.Kind {
	case Create:
		m.names[op.Name] = op.File
	case Unlink:
		delete(m.names, op.Name)
	case Rename:
		if file, ok := m.names[op.Name]; ok {
			m.names[op.To] = file
			delete(m.names, op.Name)
		}
	case Truncate:
		m.files[op.File] = resize(m.files[op.File], op.Off)
	case Write:
		old := m.files[op.File]
		p := resize(old, max(int64(len(old)), op.Off+int64(len(op.Data))))
		copy(p[op.Off:], op.Data)
		m.files[op.File] = p
	}
}

// tear writes the sectors of a write that a mask selects.
func (m *image) tear(op Op, sectors uint64) {
	var kept [][2]int64
	size := int64(len(m.files[op.File]))
	for n, at := 0, int64(0); at < int64(len(op.Data)); n++ {
		end := min((op.Off+at)/m.sector*m.sector+m.sector-op.Off, int64(len(op.Data)))
		if sectors>>(n%64)&1 != 0 {
			kept = append(kept, [2]int64{at, end})
			size = max(size, op.Off+end)
		}
		at = end
	}
	p := resize(m.files[op.File], size)
	for _, k := range kept {
		copy(p[op.Off+k[0]:], op.Data[k[0]:k[1]])
	}
	m.files[op.File] = p
}

// resize returns a copy of p with another size.
func resize(p []byte, size int64) []byte {
	q := make([]byte, size)
	copy(q, p)
	return q
}

// State is a possible content of a disk after a power cut.
type State struct {
	Cut    int            // how many operations of the trace had begun
	Number int            // of the state, at this cut
	Acked  map[string]int // the newest acknowledged commit of each name

	trace   *Trace
	image   *image
	results []string // of each operation that was not durable: kept, lost or torn
}

// Build writes the state into an empty directory.
func (s *State) Build(dir string) error {
	for name, file := range s.image.names {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, s.image.files[file], 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Files returns the contents by name. They must not be changed.
func (s *State) Files() map[string][]byte {
	files := make(map[string][]byte, len(s.image.names))
	for name, file := range s.image.names {
		files[name] = s.image.files[file]
	}
	return files
}

// Has reports whether a name exists.
func (s *State) Has(name string) bool {
	_, ok := s.image.names[name]
	return ok
}

// hash returns a hash of the state.
func (s *State) hash(seed maphash.Seed) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	for _, name := range slices.Sorted(maps.Keys(s.image.names)) {
		h.WriteString(name)
		p := s.image.files[s.image.names[name]]
		maphash.WriteComparable(&h, len(p))
		h.Write(p)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Acked)) {
		h.WriteString(name)
		maphash.WriteComparable(&h, s.Acked[name])
	}
	return h.Sum64()
}
