// SPDX-License-Identifier: MIT

package powercut

import (
	"encoding/gob"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Kind is the kind of an [Op].
type Kind int

const (
	Write    Kind = iota // Data at Off
	Truncate             // to Off bytes
	Create               // Name becomes the file
	Unlink               // of Name
	Rename               // of Name to To
	Begin                // of a sync: of the file, or of the directory Name
	End                  // of the sync that began at Off
	Ack                  // commit Off of Name was acknowledged
	Lose                 // the file's writes are forgotten after a failed sync
)

var kinds = [...]string{"write", "truncate", "create", "unlink", "rename", "begin", "end", "ack", "lose"}

func (k Kind) String() string { return kinds[k] }

// Op is an operation on the disk. Names are relative to the recorder's directory.
type Op struct {
	Kind     Kind
	File     int // for Create, Write, Truncate, and Begin and End of a file
	Off      int64
	Data     []byte
	Name, To string
	// Through is set for a write that is durable from the End with its number on.
	Through bool
}

// Trace is a record of operations.
type Trace struct {
	Ops   []Op
	Files []string // the last name that each was given
}

// Describe returns a description of an operation.
func (t *Trace) Describe(i int) string {
	op := t.Ops[i]
	name := op.Name
	switch {
	case op.Kind == End:
		return fmt.Sprintf("%d: end of %d", i, op.Off)
	case op.Kind == Begin && name != "":
		return fmt.Sprintf("%d: begin of a sync of directory %s", i, name)
	case op.Kind == Begin:
		return fmt.Sprintf("%d: begin of a sync of %s", i, t.Files[op.File])
	case op.Kind == Ack:
		return fmt.Sprintf("%d: commit %d of %s acknowledged", i, op.Off, name)
	case op.Kind == Rename:
		return fmt.Sprintf("%d: rename %s to %s", i, name, op.To)
	case name == "":
		name = t.Files[op.File]
	}
	return fmt.Sprintf("%d: %v %s at %d, %d bytes", i, op.Kind, name, op.Off, len(op.Data))
}

// Class is a kind of sync that a test leaves out on purpose.
type Class struct {
	Suffix  string // of the file's name; "/" is a directory
	Through bool   // durable writes instead of syncs
	Every   bool   // all of them; otherwise only the Nth
	Nth     int
	From    int // the first of them that may be left out
}

// Forget returns the trace without the syncs of a class, as if the program had left
// them out, and their number.
func (t *Trace) Forget(c Class) (*Trace, int) {
	out := &Trace{Ops: make([]Op, 0, len(t.Ops)), Files: t.Files}
	moved := make(map[int64]int64, len(t.Ops)) // old place of a Begin to the new one
	found, forgotten := 0, 0
	for i, op := range t.Ops {
		if (op.Kind == Begin || op.Kind == Write && op.Through) && t.matches(op, c) {
			found++
			if c.Every || found-1 == c.Nth {
				forgotten++
				if op.Kind == Write {
					op.Through = false
					out.Ops = append(out.Ops, op)
				}
				continue
			}
		}
		if op.Kind == End {
			to, ok := moved[op.Off]
			if !ok {
				continue
			}
			op.Off = to
		}
		moved[int64(i)] = int64(len(out.Ops))
		out.Ops = append(out.Ops, op)
	}
	return out, forgotten
}

func (t *Trace) matches(op Op, c Class) bool {
	if c.Through != (op.Kind == Write) {
		return false
	}
	if op.Kind == Begin && op.Name != "" {
		return c.Suffix == "/"
	}
	return c.Suffix != "/" && strings.HasSuffix(t.Files[op.File], c.Suffix)
}

// Save keeps a trace in a file, for Load.
func (t *Trace) Save(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return gob.NewEncoder(f).Encode(t)
}

// Load reads a trace that Save wrote.
func Load(path string) (*Trace, error) {
	f, err := os.Open(filepath.Clean(path))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t := new(Trace)
	return t, gob.NewDecoder(f).Decode(t)
}
