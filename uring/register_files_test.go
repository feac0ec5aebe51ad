// SPDX-License-Identifier: MIT

package uring_test

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

func init() {
	ledgerRegister(uring.OpRegisterFiles, row{since: "5.1", uses: []string{"Ring.RegisterFiles"}, kernel: kernelRegisterFiles})
	ledgerRegister(uring.OpUnregisterFiles, row{since: "5.1", uses: []string{"Ring.UnregisterFiles"}, kernel: kernelUnregisterFiles})
	ledgerRegister(uring.OpRegisterFilesUpdate, row{since: "5.5", uses: []string{"Ring.UpdateFiles", "SkipFile"}, kernel: kernelRegisterFilesUpdate})
	ledgerRegister(uring.OpRegisterFiles2, row{since: "5.13", uses: []string{"Ring.RegisterFiles", "Ring.RegisterFilesSparse"}, kernel: kernelRegisterFiles2})
	ledgerRegister(uring.OpRegisterFilesUpdate2, row{since: "5.13", uses: []string{"Ring.UpdateFiles"}, kernel: kernelRegisterFilesUpdate2})
	ledgerRegister(uring.OpRegisterFileAllocRange, row{since: "6.0", uses: []string{"Ring.SetFileAllocRange", "SlotAuto"}, kernel: kernelRegisterFileAllocRange})
}

// ctlNamed returns descriptors of files that each contain their own name.
func ctlNamed(t testing.TB, names ...string) []int {
	t.Helper()
	dir := t.TempDir()
	fds := make([]int, len(names))
	for i, name := range names {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
		fds[i] = ctlOpen(t, path, os.O_RDONLY)
	}
	return fds
}

// ctlSlot checks which file a slot holds, "" for none.
func ctlSlot(t testing.TB, r *uring.Ring, slot int, want string) {
	t.Helper()
	buf := make([]byte, 16)
	c := ringtest.Do(t, r, func(e *uring.SQE) { e.Read(uring.FixedFd(slot), buf, 0) })
	got := string(buf[:max(c.Res, 0)])
	if got != want || c.Res < 0 && c.Errno() != syscall.EBADF {
		t.Fatalf("slot %d: %+v (%v), holds %q, want %q", slot, c, c.Err(), got, want)
	}
	runtime.KeepAlive(buf)
}

// kernelRegisterFiles also catches a table made of Go's ints: then descriptor 0 would be in
// slot 1.
func kernelRegisterFiles(t *testing.T) {
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		fds := ctlNamed(t, "zero", "one", "three")
		table := []int{fds[0], fds[1], -1, fds[2]}
		ctlOK(t, "register", r.RegisterFiles(table))
		ctlErrno(t, "register twice", r.RegisterFiles(table), syscall.EBUSY)
		for slot, want := range []string{"zero", "one", "", "three", ""} {
			ctlSlot(t, r, slot, want)
		}
		ctlOK(t, "unregister", r.UnregisterFiles())
		ctlErrno(t, "a descriptor that is not open", r.RegisterFiles([]int{1 << 28}), syscall.EBADF)
		ctlErrno(t, "no files", r.RegisterFiles(nil), syscall.EFAULT)
	})
}

func kernelUnregisterFiles(t *testing.T) {
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		ctlErrno(t, "unregister nothing", r.UnregisterFiles(), syscall.ENXIO)
		for range 3 {
			name := filepath.Join(t.TempDir(), "closed")
			ctlOK(t, "write", os.WriteFile(name, []byte("closed"), 0o600))
			f, err := os.Open(name)
			ctlOK(t, "open", err)
			ctlOK(t, "register", r.RegisterFiles([]int{int(f.Fd())}))
			ctlOK(t, "close", f.Close())
			ctlSlot(t, r, 0, "closed") // the table holds its own reference
			ctlOK(t, "unregister", r.UnregisterFiles())
			ctlSlot(t, r, 0, "")
		}
	})
}

func kernelRegisterFilesUpdate(t *testing.T) {
	ringtest.NeedKernel(t, "FILES_UPDATE with SkipFile", "5.12")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		fds := ctlNamed(t, "a", "b", "c", "d")
		_, err := r.UpdateFiles(0, fds[:1])
		ctlErrno(t, "update nothing", err, syscall.ENXIO)
		ctlOK(t, "register", r.RegisterFiles([]int{fds[0], fds[1], fds[2], -1}))
		if n, err := r.UpdateFiles(1, []int{uring.SkipFile, fds[3], fds[0]}); n != 3 || err != nil {
			t.Fatalf("update: %d, %v", n, err)
		}
		if n, err := r.UpdateFiles(0, []int{-1}); n != 1 || err != nil {
			t.Fatalf("update: %d, %v", n, err)
		}
		for slot, want := range []string{"", "b", "d", "a"} {
			ctlSlot(t, r, slot, want)
		}
		_, err = r.UpdateFiles(3, fds[:2])
		ctlErrno(t, "update beyond the table", err, syscall.EINVAL)
		_, err = r.UpdateFiles(0, []int{1 << 28})
		ctlErrno(t, "a descriptor that is not open", err, syscall.EBADF)
	})
}

func kernelRegisterFiles2(t *testing.T) {
	ringtest.NeedKernel(t, "tagged files", "5.13")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		fds := ctlNamed(t, "a", "b", "c")
		ctlOK(t, "register", r.RegisterFiles(fds, 91, 0, 93))
		ctlSlot(t, r, 1, "b")
		ctlOK(t, "unregister", r.UnregisterFiles())
		ctlTagsDropped(t, r, 91, 93)
		if r.RegisterFiles(fds, 1) == nil {
			t.Error("one tag for three files is accepted")
		}
		ctlErrno(t, "a tag for an empty slot", r.RegisterFiles([]int{-1}, 5), syscall.EINVAL)
		if !ctlHasKernel(t, "5.19") {
			return
		}
		ctlOK(t, "register sparse", r.RegisterFilesSparse(3))
		ctlSlot(t, r, 2, "")
		ctlErrno(t, "register twice", r.RegisterFilesSparse(3), syscall.EBUSY)
		ctlOK(t, "unregister", r.UnregisterFiles())
		ctlErrno(t, "no slots", r.RegisterFilesSparse(0), syscall.EINVAL)
	})
}

func kernelRegisterFilesUpdate2(t *testing.T) {
	ringtest.NeedKernel(t, "sparse files", "5.19")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		fds := ctlNamed(t, "a", "b", "c")
		ctlOK(t, "register", r.RegisterFilesSparse(4))
		if n, err := r.UpdateFiles(1, fds, 61, 62, 0); n != 3 || err != nil {
			t.Fatalf("update: %d, %v", n, err)
		}
		for slot, want := range []string{"", "a", "b", "c"} {
			ctlSlot(t, r, slot, want)
		}
		if n, err := r.UpdateFiles(2, []int{-1, fds[0]}); n != 2 || err != nil {
			t.Fatalf("update: %d, %v", n, err)
		}
		ctlTags(t, r, 62)
		for slot, want := range []string{"", "a", "", "a"} {
			ctlSlot(t, r, slot, want)
		}
		_, err := r.UpdateFiles(2, fds)
		ctlErrno(t, "update beyond the table", err, syscall.EINVAL)
		if _, err = r.UpdateFiles(0, fds, 1); err == nil {
			t.Error("one tag for three files is accepted")
		}
	})
}

func kernelRegisterFileAllocRange(t *testing.T) {
	ringtest.NeedKernel(t, "FILE_ALLOC_RANGE", "6.0")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		ctlOK(t, "register", r.RegisterFilesSparse(8))
		ctlOK(t, "range", r.SetFileAllocRange(5, 2))
		name := filepath.Join(t.TempDir(), "auto")
		ctlOK(t, "write", os.WriteFile(name, []byte("auto"), 0o600))
		path, err := uring.NewPath(name)
		ctlOK(t, "path", err)
		open := func() uring.CQE {
			return ringtest.Do(t, r, func(e *uring.SQE) {
				e.OpenAt(uring.AtCWD, path, os.O_RDONLY, 0).SetSlot(uring.SlotAuto)
			})
		}
		if a, b, c := open(), open(), open(); a.Res != 5 || b.Res != 6 || c.Errno() != syscall.ENFILE {
			t.Errorf("slots %d and %d, then %v; want 5 and 6, then ENFILE", a.Res, b.Res, c.Err())
		}
		ctlSlot(t, r, 6, "auto")
		ctlErrno(t, "a range beyond the table", r.SetFileAllocRange(6, 3), syscall.EINVAL)
		ctlErrno(t, "a range that overflows", r.SetFileAllocRange(1, -1), syscall.EOVERFLOW)
		runtime.KeepAlive(path)
	})
}
