// SPDX-License-Identifier: MIT

package reactor

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/ringside-io/ringside/uring"
)

// ErrFilesFull is returned by RegisterFile when every slot of the table is in
// use.
var ErrFilesFull = errors.New("reactor: every slot of the file table is in use: raise Options.Files")

// FixedFile is an open file in the tables of registered files that the loops of
// a reactor have. An operation that names it in [Op.File] spares the kernel the
// look-up of the descriptor and the count of its users, which is what several
// threads that use one file meet at. All methods may be called concurrently.
type FixedFile struct {
	r     *Reactor
	slot  int
	claim claim
}

// RegisterFile puts the file that a descriptor names into the table of every
// loop. The table holds references of its own: the descriptor may be closed,
// which does not close the file before Release. The tables are made at the first
// call, with [Options.Files] slots, or fewer where RLIMIT_NOFILE or
// RLIMIT_MEMLOCK is lower.
//
// It must not be called by a callback of a pinned loop, which panics. Errors:
// ErrFilesFull; ErrClosed; EBADF for no descriptor; what the kernel answers
// when it lets not even a small table be registered; errors.ErrUnsupported
// before 5.13.
func (r *Reactor) RegisterFile(fd int) (*FixedFile, error) {
	r.mayRegister()
	if fd < 0 { // which the kernel takes for the wish to empty the slot
		return nil, fmt.Errorf("reactor: register file: %w", syscall.EBADF)
	}
	slot, err := r.files.take(r)
	if err != nil {
		return nil, err
	}
	f := &FixedFile{r: r, slot: slot}
	f.claim.hold()
	for _, l := range r.loops {
		if err := l.onRing(func(r ring) error { return setFile(r, slot, fd) }); err != nil {
			f.clear()
			if err != ErrClosed {
				err = fmt.Errorf("reactor: register file: %w", err)
			}
			return nil, err
		}
	}
	return f, nil
}

// Release gives the slot back: operations that start from now on and name f end
// with an error, and the kernel lets go of the file once those in flight have
// ended, soon after. Only then is the slot used again. It may be called by
// callbacks; the second call does nothing.
func (f *FixedFile) Release() {
	last, _ := f.claim.drop()
	switch {
	case !last:
	case f.r.opts.Pinned: // the caller may be a thread that would have to do it
		f.r.background.run(f.clear)
	default:
		f.clear()
	}
}

// clear empties the slot on every loop.
func (f *FixedFile) clear() {
	for _, l := range f.r.loops {
		// A ring that has failed or is closed has no table to care for.
		_ = l.onRing(func(r ring) error { return setFile(r, f.slot, -1) })
	}
	f.r.files.put(f.slot)
}

// fileTable is a ring that can have registered files.
type fileTable interface {
	Features() uring.Features
	RegisterFilesSparse(n int) error
	RegisterFiles(fds []int) error
	UpdateFiles(first int, fds []int) (int, error)
}

func setFile(r ring, slot, fd int) error {
	_, err := r.(fileTable).UpdateFiles(slot, []int{fd})
	return err
}

// files hands out the slots of the tables.
type files struct {
	mu   sync.Mutex
	size int // 0 before the first use
	next int
	free []int
	busy atomic.Int64 // slots that are in use or about to be emptied
}

// fewestFiles is how many slots are worth a table.
const fewestFiles = 16

// take returns a free slot. The first call makes the tables.
func (t *files) take(r *Reactor) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.size == 0 {
		size, err := r.openFiles()
		if err != nil {
			return 0, err
		}
		t.size = size
	}
	n := len(t.free)
	switch {
	case n > 0:
		slot := t.free[n-1]
		t.free = t.free[:n-1]
		t.busy.Add(1)
		return slot, nil
	case t.next < t.size:
		t.next++
		t.busy.Add(1)
		return t.next - 1, nil
	}
	return 0, ErrFilesFull
}

func (t *files) put(slot int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free = append(t.free, slot)
	t.busy.Add(-1)
}

// openFiles makes the tables of all loops and returns the size of the smallest.
func (r *Reactor) openFiles() (int, error) {
	size := r.opts.Files
	for _, l := range r.loops {
		err := l.onRing(func(r ring) (err error) {
			if l.fileSlots == 0 {
				l.fileSlots, err = openFileTable(r, size)
			}
			size = min(size, l.fileSlots)
			return err
		})
		switch {
		case err == ErrClosed:
			return 0, err
		case err != nil:
			return 0, fmt.Errorf("reactor: file table: %w", err)
		}
	}
	return size, nil
}

// openFileTable makes one table of at most n slots, and returns how many it has.
func openFileTable(r ring, n int) (int, error) {
	t, ok := r.(fileTable)
	if !ok || t.Features()&uring.FeatRsrcTags == 0 {
		// Before 5.13 registering waits for the operations in flight, and so
		// perhaps for ever.
		return 0, fmt.Errorf("needs Linux 5.13: %w", errors.ErrUnsupported)
	}
	for {
		err := t.RegisterFilesSparse(n)
		if errors.Is(err, syscall.EINVAL) { // before 5.19
			empty := make([]int, n)
			for i := range empty {
				empty[i] = -1
			}
			err = t.RegisterFiles(empty)
		}
		switch {
		case err == nil:
			return n, nil
		case n <= fewestFiles:
			return 0, err
		case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENOMEM):
			n = max(n/2, fewestFiles)
		default:
			return 0, err
		}
	}
}

// use makes an entry name the registered file.
func (f *FixedFile) use(e *uring.SQE) {
	e.Raw().Fd = int32(f.slot)
	e.SetFlags(uring.SQEFixedFile)
}
