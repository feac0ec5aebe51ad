// SPDX-License-Identifier: MIT

package ufile

import "fmt"

// Advice tells the kernel how a range of a file will be used.
type Advice int

// Advice of posix_fadvise(2). It changes how fast reads are, never what they
// return.
const (
	AdviceNormal     Advice = iota // nothing is known
	AdviceRandom                   // in no order: nothing is read ahead
	AdviceSequential               // in order: more is read ahead
	AdviceWillNeed                 // soon: reading into the page cache begins
	AdviceDontNeed                 // not soon: what is clean leaves the page cache
	AdviceNoReuse                  // once: does not push others out of the page cache (has an effect since Linux 6.3)
)

// String returns normal, random, sequential, willneed, dontneed or noreuse.
func (a Advice) String() string {
	names := [...]string{"normal", "random", "sequential", "willneed", "dontneed", "noreuse"}
	if a < 0 || int(a) >= len(names) {
		return fmt.Sprintf("Advice(%d)", int(a))
	}
	return names[a]
}

// Advise tells the kernel how n bytes from off will be used; n 0 means all from
// off on. It is about the page cache, and so does nothing for O_DIRECT. It is a
// plain system call: AdviceWillNeed starts reads and does not wait for them,
// unless the device's queue is full.
//
// Errors are *fs.PathError with the Op "fadvise", matching
// errors.ErrUnsupported on systems other than Linux.
func (f *File) Advise(off, n int64, a Advice) error {
	return f.hold("fadvise", func(fd int) error { return fadvise(fd, off, n, a) })
}
