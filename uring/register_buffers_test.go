// SPDX-License-Identifier: MIT

package uring_test

import (
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

func init() {
	ledgerRegister(uring.OpRegisterBuffers, row{since: "5.1", uses: []string{"Ring.RegisterBuffers"}, kernel: kernelRegisterBuffers})
	ledgerRegister(uring.OpUnregisterBuffers, row{since: "5.1", uses: []string{"Ring.UnregisterBuffers"}, kernel: kernelUnregisterBuffers})
	ledgerRegister(uring.OpRegisterBuffers2, row{since: "5.13", uses: []string{"Ring.RegisterBuffers", "Ring.RegisterBuffersSparse"}, kernel: kernelRegisterBuffers2})
	ledgerRegister(uring.OpRegisterBuffersUpdate, row{since: "5.13", uses: []string{"Ring.UpdateBuffers"}, kernel: kernelRegisterBuffersUpdate})
	ledgerRegister(uring.OpRegisterCloneBuffers, row{since: "6.12", uses: []string{"Ring.CloneBuffers", "CloneOptions"}, kernel: kernelRegisterCloneBuffers})
}

// ctlFixed writes text through registered buffer number index of a pipe's writer and reads
// it back to a place behind the start of the buffer.
func ctlFixed(t testing.TB, r *uring.Ring, buf []byte, index uint16) {
	t.Helper()
	rd, wr := ctlPipe(t)
	const text = "through a registered buffer"
	part := buf[16 : 16+len(text)]
	copy(part, text)
	c := ringtest.Do(t, r, func(e *uring.SQE) { e.WriteFixed(uring.Fd(wr), part, 0, index) })
	if int(c.Res) != len(text) {
		t.Fatalf("write from buffer %d: %+v (%v)", index, c, c.Err())
	}
	clear(part)
	c = ringtest.Do(t, r, func(e *uring.SQE) { e.ReadFixed(uring.Fd(rd), part, 0, index) })
	if string(part) != text {
		t.Fatalf("read into buffer %d: %+v, %q", index, c, part)
	}
	runtime.KeepAlive(buf)
}

// ctlNotFixed checks that no operation can use buffer number index for buf.
func ctlNotFixed(t testing.TB, r *uring.Ring, buf []byte, index uint16) {
	t.Helper()
	_, wr := ctlPipe(t)
	c := ringtest.Do(t, r, func(e *uring.SQE) { e.WriteFixed(uring.Fd(wr), buf[:8], 0, index) })
	if c.Errno() != syscall.EFAULT {
		t.Fatalf("write from buffer %d: %+v, want EFAULT", index, c)
	}
	runtime.KeepAlive(buf)
}

func ctlBuffers(n int) [][]byte {
	bufs := make([][]byte, n)
	for i := range bufs {
		bufs[i] = make([]byte, 4096)
	}
	return bufs
}

func kernelRegisterBuffers(t *testing.T) {
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		bufs := ctlBuffers(3)
		bufs[1] = nil
		ctlOK(t, "register", r.RegisterBuffers(bufs))
		ctlFixed(t, r, bufs[0], 0)
		ctlFixed(t, r, bufs[2], 2)
		ctlNotFixed(t, r, bufs[0], 2) // the memory of another buffer
		ctlNotFixed(t, r, bufs[0], 1)
		ctlNotFixed(t, r, bufs[0], 3)
		ctlErrno(t, "register twice", r.RegisterBuffers(bufs), syscall.EBUSY)
		ctlOK(t, "unregister", r.UnregisterBuffers())
		ctlErrno(t, "register nothing", r.RegisterBuffers(nil), syscall.EFAULT)
	})
}

func kernelUnregisterBuffers(t *testing.T) {
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		ctlErrno(t, "unregister nothing", r.UnregisterBuffers(), syscall.ENXIO)
		bufs := ctlBuffers(1)
		for range 3 {
			ctlOK(t, "register", r.RegisterBuffers(bufs))
			ctlFixed(t, r, bufs[0], 0)
			ctlOK(t, "unregister", r.UnregisterBuffers())
			ctlNotFixed(t, r, bufs[0], 0)
		}
	})
}

func kernelRegisterBuffers2(t *testing.T) {
	ringtest.NeedKernel(t, "tagged buffers", "5.13")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		bufs := ctlBuffers(3)
		ctlOK(t, "register", r.RegisterBuffers(bufs, 71, 0, 73))
		ctlFixed(t, r, bufs[2], 2)
		ctlOK(t, "unregister", r.UnregisterBuffers())
		ctlTagsDropped(t, r, 71, 73)
		if r.RegisterBuffers(bufs, 1) == nil {
			t.Error("one tag for three buffers is accepted")
		}
		ctlErrno(t, "a tag for an empty slot", r.RegisterBuffers([][]byte{nil}, 5), syscall.EINVAL)
		if !ctlHasKernel(t, "5.19") {
			return
		}
		ctlOK(t, "register sparse", r.RegisterBuffersSparse(2))
		ctlNotFixed(t, r, bufs[0], 0)
		ctlErrno(t, "register twice", r.RegisterBuffersSparse(2), syscall.EBUSY)
		ctlOK(t, "unregister", r.UnregisterBuffers())
		ctlErrno(t, "no slots", r.RegisterBuffersSparse(0), syscall.EINVAL)
	})
}

// ctlTagsDropped is ctlTags after the table has been unregistered; older kernels post no
// tags then.
func ctlTagsDropped(t *testing.T, r *uring.Ring, tags ...uint64) {
	t.Helper()
	if !ctlHasKernel(t, "6.13") {
		tags = nil
	}
	ctlTags(t, r, tags...)
}

// ctlTags awaits the completions of tags, in any order, and checks that there are no
// others.
func ctlTags(t testing.TB, r *uring.Ring, tags ...uint64) {
	t.Helper()
	want := map[uint64]bool{}
	for _, tag := range tags {
		want[tag] = true
	}
	for _, c := range ringtest.Await(t, r, len(tags)) {
		if !want[c.UserData] || c.Res != 0 {
			t.Fatalf("completion %+v, want one of the tags %v", c, tags)
		}
		delete(want, c.UserData)
	}
	if n := r.Reap(make([]uring.CQE, 1)); n != 0 {
		t.Fatal("there is an unexpected completion")
	}
}

func kernelRegisterBuffersUpdate(t *testing.T) {
	ringtest.NeedKernel(t, "sparse buffers", "5.19")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		bufs := ctlBuffers(3)
		_, err := r.UpdateBuffers(0, bufs)
		ctlErrno(t, "update nothing", err, syscall.ENXIO)
		ctlOK(t, "register", r.RegisterBuffersSparse(4))
		if n, err := r.UpdateBuffers(1, bufs, 81, 0, 83); n != 3 || err != nil {
			t.Fatalf("update: %d, %v", n, err)
		}
		ctlNotFixed(t, r, bufs[0], 0)
		for i, b := range bufs {
			ctlFixed(t, r, b, uint16(1+i))
		}
		if n, err := r.UpdateBuffers(2, [][]byte{bufs[0], nil}); n != 2 || err != nil {
			t.Fatalf("update: %d, %v", n, err)
		}
		ctlTags(t, r, 83)
		ctlFixed(t, r, bufs[0], 2)
		ctlNotFixed(t, r, bufs[2], 3)
		_, err = r.UpdateBuffers(2, bufs)
		ctlErrno(t, "update beyond the table", err, syscall.EINVAL)
		if _, err = r.UpdateBuffers(0, bufs[:1], 1, 2); err == nil {
			t.Error("two tags for one buffer are accepted")
		}
		ctlTagInFlight(t, r, bufs[0])
	})
}

// ctlTagInFlight replaces the buffer of a read that waits: the tag is posted after the read
// has ended, not before.
func ctlTagInFlight(t *testing.T, r *uring.Ring, buf []byte) {
	t.Helper()
	rd, wr := ctlPipe(t)
	ctlNext(t, r).ReadFixed(uring.Fd(rd), buf[:4], 0, 1).SetUserData(9)
	_, err := r.SubmitAndWait(0)
	ctlOK(t, "submit", err)
	ctlUntil(t, "the kernel takes the entry", func() bool { return r.Pending() == 0 })
	_, err = r.UpdateBuffers(1, [][]byte{nil})
	ctlOK(t, "update", err)
	if n := r.Reap(make([]uring.CQE, 1)); n != 0 {
		t.Fatal("the tag of a buffer in use was posted")
	}
	ctlWrite(t, wr, []byte("data"))
	c := ringtest.Await(t, r, 2)
	if c[0].UserData == 81 {
		c[0], c[1] = c[1], c[0] // both may be posted at once
	}
	if c[0].UserData != 9 || c[0].Res != 4 || c[1].UserData != 81 || string(buf[:4]) != "data" {
		t.Fatalf("completions %+v, data %q", c, buf[:4])
	}
}

func kernelRegisterCloneBuffers(t *testing.T) {
	ringtest.NeedKernel(t, "cloned buffers", "6.12")
	ringtest.OverFlavours(t, func(t *testing.T, src *uring.Ring) {
		dst := ringtest.Open(t, &uring.Options{Entries: 2})
		bufs := ctlBuffers(3)
		ctlErrno(t, "clone nothing", dst.CloneBuffers(src, uring.CloneOptions{}), syscall.ENXIO)
		ctlOK(t, "register", src.RegisterBuffers(bufs))
		ctlOK(t, "clone", dst.CloneBuffers(src, uring.CloneOptions{}))
		ctlErrno(t, "clone twice", dst.CloneBuffers(src, uring.CloneOptions{}), syscall.EBUSY)
		ctlFixed(t, dst, bufs[1], 1)
		ctlFixed(t, src, bufs[1], 1)
		if ctlHasKernel(t, "6.13") {
			cloneParts(t, dst, src, bufs)
		}
		ctlOK(t, "unregister the source", src.UnregisterBuffers())
		ctlFixed(t, dst, bufs[0], 0)
	})
	t.Run("registered only", func(t *testing.T) {
		src := ctlRing(t, uring.Options{Entries: 4, RegisteredFDOnly: true})
		dst := ctlRing(t, uring.Options{Entries: 4, RegisteredFDOnly: true})
		bufs := ctlBuffers(2)
		ctlOK(t, "register", src.RegisterBuffers(bufs))
		ctlOK(t, "clone", dst.CloneBuffers(src, uring.CloneOptions{}))
		ctlFixed(t, dst, bufs[1], 1)
	})
}

func cloneParts(t *testing.T, dst, src *uring.Ring, bufs [][]byte) {
	t.Helper()
	part := uring.CloneOptions{SrcFirst: 2, DstFirst: 1, Count: 1}
	ctlErrno(t, "clone over a table", dst.CloneBuffers(src, part), syscall.EBUSY)
	part.Replace = true
	ctlOK(t, "clone a part", dst.CloneBuffers(src, part))
	ctlFixed(t, dst, bufs[2], 1)
	ctlNotFixed(t, dst, bufs[1], 1)
	ctlFixed(t, dst, bufs[0], 0)
	part.SrcFirst = 3
	if err := dst.CloneBuffers(src, part); err == nil || !strings.Contains(err.Error(), "CLONE_BUFFERS") {
		t.Errorf("clone beyond the table: %v", err)
	}
}
