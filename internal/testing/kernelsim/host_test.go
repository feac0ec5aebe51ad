// SPDX-License-Identifier: MIT

package kernelsim

import (
	"bytes"
	"runtime"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/uring"
)

// oneFile is a host with one file, which has descriptor 3.
type oneFile struct {
	data  []byte
	syncs int
}

func (f *oneFile) Read(fd int, p []byte, off int64) int32 {
	if fd != 3 {
		return -int32(syscall.EBADF)
	}
	return int32(copy(p, f.data[off:]))
}

func (f *oneFile) Write(_ int, p []byte, off int64) int32 { return int32(copy(f.data[off:], p)) }

func (f *oneFile) Sync(int) int32 { f.syncs++; return 0 }

func (f *oneFile) Hold(fd int) int32 { return int32(fd) }

func (f *oneFile) Drop(int) {}

// TestHost runs operations on a descriptor of the process, with short results, besides the
// simulated kernel's descriptors.
func TestHost(t *testing.T) {
	f := &oneFile{data: []byte("0123456789")}
	k := New(Options{Seed: 1, Host: f, FirstFD: 100, Faults: Faults{Short: 1}})
	defer k.Close()
	r := k.Open(RingOptions{Entries: 8, CQEntries: 8})
	own := k.File(bytes.Repeat([]byte("x"), 10))
	if own < 100 {
		t.Errorf("the kernel's own descriptor is %d", own)
	}
	bufs := [4][]byte{make([]byte, 5), []byte("abcde"), make([]byte, 5), make([]byte, 5)}
	r.SQE().Read(uring.Fd(3), bufs[0], 2).Raw().UserData = 0
	r.SQE().Write(uring.Fd(3), bufs[1], 5).Raw().UserData = 1
	r.SQE().Read(uring.Fd(4), bufs[2], 0).Raw().UserData = 2
	r.SQE().Read(uring.Fd(own), bufs[3], 0).Raw().UserData = 3
	r.SQE().Fsync(uring.Fd(3), true).Raw().UserData = 4
	r.SQE().Fsync(uring.Fd(own), true).Raw().UserData = 5
	r.SQE().PollAdd(uring.Fd(3), 1).Raw().UserData = 6
	if n, err := r.Submit(); n != 7 || err != nil {
		t.Fatal(n, err)
	}
	var cqes [8]uring.CQE
	res := make(map[uint64]int32)
	for len(res) < 7 {
		for _, c := range cqes[:r.Reap(cqes[:])] {
			res[c.UserData] = c.Res
		}
		runtime.Gosched()
	}
	for i := range uint64(2) {
		if n := res[i]; n < 1 || n > 4 {
			t.Errorf("operation %d: result %d, want a short one", i, n)
		}
	}
	if n := res[0]; n > 0 && !bytes.HasPrefix([]byte("23456"), bufs[0][:min(n, 3)]) {
		t.Errorf("read %q", bufs[0])
	}
	if n := max(res[1], 0); string(f.data[5:5+n]) != "abcde"[:n] {
		t.Errorf("wrote %q", f.data)
	}
	for i, errno := range map[uint64]syscall.Errno{2: syscall.EBADF, 5: syscall.EINVAL, 6: syscall.EINVAL} {
		if res[i] != -int32(errno) {
			t.Errorf("operation %d: result %d, want %v", i, res[i], errno)
		}
	}
	if res[4] != 0 || f.syncs != 1 {
		t.Errorf("sync: %d, %d times", res[4], f.syncs)
	}
	if res[3] < 1 || bufs[3][0] != 'x' {
		t.Errorf("the kernel's own file: %d, %q", res[3], bufs[3])
	}
	if v := k.Violations(); len(v) > 0 {
		t.Error(v)
	}
}

// TestPipeBytes compares the two ways to compute them, across the ends of runs.
func TestPipeBytes(t *testing.T) {
	p := make([]byte, 3*pipeRun)
	for _, from := range []uint64{0, 1, pipeRun - 1, 5*pipeRun + 7, 1 << 40} {
		PipeBytes(p, from)
		for i, b := range p {
			if b != PipeByte(from+uint64(i)) {
				t.Fatalf("from %d: byte %d differs", from, i)
			}
		}
	}
}
