// SPDX-License-Identifier: MIT

package simring

// object is what a descriptor names.
type object struct {
	fd    int
	kind  kind
	count uint64 // operations so far, which decides their fate

	data []byte // of a file

	sent, taken uint64 // bytes into and out of a pipe; signals of a wake-up
	waiting     []*op  // reads that wait for data
	polls       []*op
}

type kind int

const (
	isNothing kind = iota // operations that need no descriptor
	isFile
	isPipe
	isWake // an eventfd
)

// add makes an object. The caller holds mu.
func (k *Kernel) add(kind kind) *object {
	on := &object{fd: len(k.objects), kind: kind}
	k.objects = append(k.objects, on)
	return on
}

func (k *Kernel) nothing() *object {
	if len(k.objects) == 0 {
		k.add(isNothing)
	}
	return k.objects[0]
}

// object returns that of a descriptor, nil if there is none.
func (k *Kernel) object(fd int32) *object {
	if fd <= 0 || int(fd) >= len(k.objects) {
		return nil
	}
	return k.objects[fd]
}

// File makes a file with the given content, which the kernel owns from now on,
// and returns its descriptor. Files do not grow.
func (k *Kernel) File(content []byte) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	on := k.add(isFile)
	on.data = content
	return on.fd
}

// Content returns a copy of what a file holds.
func (k *Kernel) Content(fd int) []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]byte(nil), k.objects[fd].data...)
}

// Pipe makes a pipe and returns its descriptor. Its n-th byte is [PipeByte].
func (k *Kernel) Pipe() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.add(isPipe).fd
}

// PipeByte returns the n-th byte of every pipe.
func PipeByte(n uint64) byte { return byte(mix(n)) }

// Feed adds n bytes to a pipe.
func (k *Kernel) Feed(fd int, n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	on := k.objects[fd]
	on.sent += uint64(n)
	k.arrived(on)
}

// Taken returns how many bytes of a pipe have been read.
func (k *Kernel) Taken(fd int) uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.objects[fd].taken
}

// arrived serves those who wait for the data of an object. The caller holds mu.
func (k *Kernel) arrived(on *object) {
	for _, o := range on.polls {
		k.soon(0, func() { k.pollEvent(o) })
	}
	for range on.waiting {
		k.soon(0, func() { k.serve(on) })
	}
}

// serve gives data to one of those who wait. The caller holds mu.
func (k *Kernel) serve(on *object) {
	if len(on.waiting) == 0 || on.sent == on.taken {
		return
	}
	o := on.waiting[k.order.IntN(len(on.waiting))]
	o.leave()
	if on.kind == isWake {
		on.taken = on.sent
		k.finish(o, 8)
		return
	}
	if o.stream() {
		k.provide(o)
		return
	}
	n := min(uint64(o.sqe.Len), on.sent-on.taken)
	if o.fate.short && n > 1 {
		n = 1 + o.fate.Uint64N(n-1)
	}
	p := o.memory()[:n]
	for i := range p {
		p[i] = PipeByte(on.taken + uint64(i))
	}
	on.taken += n
	k.outcome(o).Data = append([]byte(nil), p...)
	k.finish(o, int32(n))
}
