// SPDX-License-Identifier: MIT

package stress

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"

	"github.com/ringside-io/ringside/watch"
)

// registry has the methods of a [watch.Loop] that scenarios use.
type registry interface {
	Add(fd int, interest watch.Events, mode watch.Trigger, f func(watch.Events)) error
	Modify(fd int, interest watch.Events, mode watch.Trigger) error
	Remove(fd int) error
}

func (w *KernelEnv) openLoop() (err error) {
	backend := watch.ModeRing
	if w.short() {
		backend = watch.ModeAuto
	}
	if w.s.Settings.Has("epoll") {
		backend = watch.ModeEpoll
	}
	if w.loop, err = watch.NewLoop(watch.Options{Mode: backend, Batch: w.s.Settings.Int("batch")}); err != nil {
		return err
	}
	w.registry = w.loop
	go func() { w.ran <- w.loop.Run(context.Background()) }()
	return nil
}

// closeLoop ends the loop, which must have no registration left.
func (w *KernelEnv) closeLoop() {
	w.onLoop(func() error {
		if n := w.loop.Len(); n != 0 {
			w.problem("%d descriptors are watched", n)
		}
		return nil
	})
	w.loop.Stop()
	if err := <-w.ran; err != nil {
		w.problem("the loop ended with %v", err)
	}
	if err := w.loop.Close(); err != nil {
		w.problem("close the loop: %v", err)
	}
}

// onLoop has a function called by the loop's goroutine and waits for it.
func (w *KernelEnv) onLoop(f func() error) error {
	done := make(chan error, 1)
	if err := w.loop.Post(func() { done <- f() }); err != nil {
		return err
	}
	return <-done
}

// kernelWatch is a pipe that a loop watches, and empties.
type kernelWatch struct {
	w    *KernelEnv
	pipe *kernelPipe
	mode watch.Trigger // belongs to the loop's goroutine
	gone bool          // belongs to the loop's goroutine

	mu       sync.Mutex
	arrived  *sync.Cond
	fed, got uint64
	first    uint64
}

// Watch makes a pipe and watches it.
func (w *KernelEnv) Watch(mode int) (Watch, error) {
	k, err := w.newWatch(mode)
	if err != nil {
		return nil, err
	}
	if err = w.onLoop(k.add); err != nil {
		_ = k.pipe.Close()
		return nil, err
	}
	return k, nil
}

// newWatch returns a watch that has not begun.
func (w *KernelEnv) newWatch(mode int) (*kernelWatch, error) {
	const first = 7
	pipe, err := newPipe(first, syscall.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	k := &kernelWatch{w: w, pipe: pipe, mode: watch.Trigger(mode % 3), first: first}
	k.arrived = sync.NewCond(&k.mu)
	return k, nil
}

// add begins the watch. The loop's goroutine calls it.
func (k *kernelWatch) add() error {
	return k.w.registry.Add(k.pipe.FD(), watch.Read, k.mode, k.event)
}

// event is called by the loop.
func (k *kernelWatch) event(found watch.Events) {
	if k.gone {
		k.w.problem("an event after the end of a watch: %v", found)
		return
	}
	if k.untouched() {
		k.w.problem("an event of a pipe that was not touched: %v", found)
	}
	var p [200]byte
	for {
		n, err := syscall.Read(k.pipe.FD(), p[:])
		switch err {
		case nil:
			k.take(p[:max(n, 0)])
		case syscall.EAGAIN:
		default:
			k.w.problem("read a watched pipe: %v", err)
		}
		if err != nil || k.mode == watch.Level {
			break
		}
	}
	if k.mode == watch.OneShot {
		if err := k.w.registry.Modify(k.pipe.FD(), watch.Read, watch.OneShot); err != nil {
			k.w.problem("modify: %v", err)
		}
	}
}

// untouched reports whether no bytes were ever fed, so that no event can occur.
func (k *kernelWatch) untouched() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.fed == 0
}

// take checks received bytes.
func (k *kernelWatch) take(p []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if at, wrong := differs(p, k.first+k.got); wrong {
		k.w.problem("byte %d of a watched pipe is another", at)
	}
	k.got += uint64(len(p))
	k.arrived.Broadcast()
}

func (k *kernelWatch) Poke(n int) error {
	k.mu.Lock()
	k.fed += uint64(n)
	k.mu.Unlock()
	return k.pipe.Feed(n)
}

func (k *kernelWatch) Seen() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for k.got < k.fed {
		k.arrived.Wait()
	}
}

func (k *kernelWatch) Change(mode int) error {
	return k.w.onLoop(func() error {
		k.mode = watch.Trigger(mode % 3)
		return k.w.registry.Modify(k.pipe.FD(), watch.Read, k.mode)
	})
}

// Replace puts another pipe under the number, in one turn of the loop.
func (k *kernelWatch) Replace(mode, n int, kept bool) (Watch, error) {
	next, err := k.w.newWatch(mode)
	if err != nil {
		return nil, errors.Join(err, k.Close())
	}
	old := -1
	if err = k.Poke(n); err == nil && kept {
		if old, err = syscall.Dup(k.pipe.FD()); err != nil {
			err = os.NewSyscallError("dup", err)
		}
	}
	if err != nil {
		return nil, errors.Join(err, k.Close(), next.pipe.Close())
	}
	if err := k.w.onLoop(func() error { return k.giveWay(next, kept) }); err != nil {
		return nil, err
	}
	return next, errors.Join(k.stir(old), syscall.Close(k.pipe.in))
}

// giveWay ends a watch before another pipe gets its number, or if late, after that.
func (k *kernelWatch) giveWay(next *kernelWatch, late bool) (err error) {
	if !late {
		err = k.end()
	}
	err = errors.Join(err, next.pipe.rename(k.pipe.FD()))
	if late {
		err = errors.Join(err, k.end())
	}
	return errors.Join(err, next.add())
}

// end ends a watch.
func (k *kernelWatch) end() error {
	k.gone = true
	return k.w.registry.Remove(k.pipe.FD())
}

// stir makes the old file of a number ready once more, if it is open, and waits until the
// loop has handled all events that it may mistake for events of the new file.
func (k *kernelWatch) stir(old int) error {
	if old >= 0 {
		if err := k.pipe.Feed(1); err != nil {
			return err
		}
		defer syscall.Close(old)
	}
	for range 2 {
		if err := k.w.onLoop(func() error { return nil }); err != nil {
			return err
		}
	}
	return nil
}

// Close closes the pipe in the same turn of the loop, so that its number is used
// again soon.
func (k *kernelWatch) Close() error {
	return k.w.onLoop(func() error {
		if err := k.end(); err != nil {
			return err
		}
		return k.pipe.Close()
	})
}
