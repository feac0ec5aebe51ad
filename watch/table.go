// SPDX-License-Identifier: MIT

package watch

import (
	"syscall"
	"time"
)

// entry is the state of a descriptor number.
type entry struct {
	value    any
	interest Events
	found    Events // reported by the kernel and not yet to the caller
	gen      uint32 // of the registration; reports for another generation are stale
	mode     Trigger
	on       bool // registered
	spent    bool // OneShot: has been reported

	// The following fields are for backends that arm requests one by one.
	armed       bool // a request of this generation is with the kernel
	multi       bool // the request stays armed after a report
	dirty       bool // interest or mode differ from what is armed
	onceByMulti bool // OneShot that is armed multishot, see ringBackend.unrequested
	rechecked   bool // listed in ringBackend.recheck, which reports it
	queued      bool // listed in changes

	// A file that was closed before Remove, while a duplicate of its descriptor
	// lives, is still reported. After every recheckEvery reports of Level the backend
	// checks whether the number still names that file.
	reports uint8
	streak  uint8  // reports of ringBackend.recheck in a row
	gone    bool   // the number no longer names the file
	file    uint64 // from sys.FileMode, for backends that cannot identify the file otherwise
}

// recheckEvery is a divisor of 256.
const recheckEvery = 64

// recheck counts a report, and reports whether to check what the number names.
func (e *entry) recheck() bool {
	if e.mode != Level {
		return false
	}
	e.reports++
	return e.reports%recheckEvery == 0
}

// asked returns the events that may be reported.
func (e *entry) asked() Events { return e.interest | always }

// turn starts a new generation.
func (e *entry) turn() {
	e.rechecked = false
	if e.gen++; e.gen == 0 {
		e.gen = 1
	}
}

// table holds the registrations of a watcher, by descriptor, and the found events.
// The caller's lock guards it.
type table struct {
	entries []entry
	n       int     // registered
	found   []int32 // descriptors in the kernel's order; stale ones have no found events
	writers int     // more than 0 when there may be some with Write among them
	changes []int32 // descriptors to arm, for backends that do that

	looksAgain bool    // the backend checks after each report of Level whether the state lasts
	served     []int32 // descriptors of such reports
}

// at returns the entry of a registered descriptor, nil for another.
func (t *table) at(fd int) *entry {
	if uint(fd) >= uint(len(t.entries)) || !t.entries[fd].on {
		return nil
	}
	return &t.entries[fd]
}

// grow makes room for the entry of fd and returns it.
func (t *table) grow(fd int) *entry {
	if fd >= len(t.entries) {
		more := make([]entry, max(fd+1, 2*len(t.entries), 64))
		copy(more, t.entries)
		t.entries = more
	}
	return &t.entries[fd]
}

// report records the events that the kernel found. It returns the entry, nil when the
// report is stale.
func (t *table) report(fd int32, gen uint32, found Events) *entry {
	if uint(fd) >= uint(len(t.entries)) {
		return nil
	}
	e := &t.entries[fd]
	if e.gen != gen || !e.on || e.gone {
		return nil
	}
	if found &= e.asked(); found != 0 && !e.spent {
		t.note(fd, e, found)
	}
	return e
}

// note lists a descriptor for the next Dispatch.
func (t *table) note(fd int32, e *entry, found Events) {
	if e.found == 0 {
		t.found = append(t.found, fd)
	}
	if found&Write != 0 {
		t.writers++
	}
	e.found |= found
}

// change lists fd to be armed.
func (t *table) change(fd int32, e *entry) {
	if !e.queued {
		e.queued = true
		t.changes = append(t.changes, fd)
	}
}

// forget ends a registration.
func (t *table) forget(e *entry) {
	gen, queued := e.gen, e.queued
	*e = entry{gen: gen, queued: queued}
	e.turn()
	t.n--
}

// backend is a mechanism of the kernel. All methods but wait and wake are called
// under the caller's lock.
type backend interface {
	// add arms e, which is filled; modify follows a change of it, from mode.
	add(fd int, e *entry) syscall.Errno
	modify(fd int, e *entry, from Trigger) syscall.Errno
	// remove disarms e, which is still filled, or was when the file was open.
	remove(fd int, e *entry)
	// prepare readies changes for the kernel.
	prepare() error
	// wait sleeps until there is something to collect, wake was called, or the
	// timeout is over; forever when it is negative. It may return early.
	wait(timeout time.Duration) error
	// collect reports the found events to the table.
	collect()
	// wake ends wait; not concurrently with close.
	wake()
	close() error
}
