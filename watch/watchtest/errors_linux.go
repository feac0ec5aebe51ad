// SPDX-License-Identifier: MIT

package watchtest

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"github.com/ringside-io/ringside/watch"
)

func twice(r *rig) {
	fd := r.counter()
	r.add(fd, watch.Read, watch.Edge)
	r.want(r.w.Add(fd, watch.Read, watch.Edge, nil), syscall.EEXIST)
	r.quiet()
	r.want(r.w.Add(fd, watch.Write, watch.Level, nil), syscall.EEXIST)
	if n := r.w.Len(); n != 1 {
		r.Errorf("%d registered", n)
	}
	r.signal(fd)
	r.awaitOne(fd, watch.Read)
}

func unknown(r *rig) {
	fd := r.counter()
	for range 2 {
		r.want(r.w.Modify(fd, watch.Read, watch.Edge, nil), syscall.ENOENT)
		r.want(r.w.Remove(fd), syscall.ENOENT)
		r.add(fd, watch.Read, watch.Edge)
		r.ok(r.w.Remove(fd))
	}
	r.want(r.w.Remove(-1), syscall.ENOENT)
	r.want(r.w.Modify(1<<30, watch.Read, watch.Edge, nil), syscall.ENOENT)
	if n := r.w.Len(); n != 0 {
		r.Errorf("%d registered", n)
	}
}

func notOpen(r *rig) {
	fd := r.counter()
	gone, err := syscall.Dup(fd)
	r.ok(err)
	r.ok(syscall.Close(gone))
	for _, fd := range []int{gone, -1, 1 << 30, 1<<31 - 1} {
		r.want(r.w.Add(fd, watch.Read, watch.Level, nil), syscall.EBADF)
	}
	if n := r.w.Len(); n != 0 {
		r.Errorf("%d registered", n)
	}
	r.quiet()
}

// notPollable gets the same error as from epoll for files, directories and devices that
// are always ready.
func notPollable(r *rig) {
	dir := r.TempDir()
	for _, name := range []string{filepath.Join(dir, "file"), dir, "/dev/null"} {
		flag := os.O_RDONLY
		if name != dir {
			flag |= os.O_CREATE
		}
		f, err := os.OpenFile(name, flag, 0o600)
		r.ok(err)
		defer f.Close()
		r.want(r.w.Add(int(f.Fd()), watch.Read, watch.Level, nil), syscall.EPERM)
		r.want(r.w.Remove(int(f.Fd())), syscall.ENOENT)
	}
	r.quiet()
}

func invalid(r *rig) {
	fd := r.counter()
	r.want(r.w.Add(fd, 1<<30, watch.Edge, nil), syscall.EINVAL)
	r.want(r.w.Add(fd, watch.Read, 7, nil), syscall.EINVAL)
	r.add(fd, watch.Read, watch.Edge)
	r.want(r.w.Modify(fd, 1<<31, watch.Edge, nil), syscall.EINVAL)
	r.want(r.w.Modify(fd, watch.Read, 7, nil), syscall.EINVAL)
	r.signal(fd)
	r.awaitOne(fd, watch.Read) // as it was
}

func closed(r *rig) {
	fd := r.counter()
	r.add(fd, watch.Read, watch.Level)
	r.signal(fd)
	r.ok(r.w.Prepare())
	r.ok(r.w.Wait(-1))
	for range 2 {
		r.ok(r.w.Close())
	}
	poll := func(f func(watch.Event)) error { _, err := r.w.Poll(-1, f); return err }
	f := func(watch.Event) { r.Error("reported by a closed watcher") }
	for name, err := range map[string]error{
		"add": r.w.Add(fd, watch.Read, watch.Level, nil), "modify": r.w.Modify(fd, watch.Read, watch.Level, nil),
		"remove": r.w.Remove(fd), "prepare": r.w.Prepare(), "wait": r.w.Wait(-1), "poll": poll(f),
	} {
		if !errors.Is(err, os.ErrClosed) || !errors.Is(err, watch.ErrClosed) {
			r.Errorf("%s: %v", name, err)
		}
	}
	r.w.Wake()
	if n := r.w.Dispatch(f) + r.w.Len(); n != 0 {
		r.Errorf("a closed watcher has %d", n)
	}
}
