// SPDX-License-Identifier: MIT

package scenario

import (
	"context"
	"sync"
	"syscall"

	"github.com/ringside-io/ringside/watch"
)

func (w *KernelWorld) openLoop() (err error) {
	backend := watch.IOUring
	if w.short() {
		backend = watch.Auto
	}
	if w.s.Settings.Has("epoll") {
		backend = watch.Epoll
	}
	if w.loop, err = watch.NewLoop(watch.Options{Backend: backend}); err != nil {
		return err
	}
	go func() { w.ran <- w.loop.Run(context.Background()) }()
	return nil
}

// closeLoop ends the loop, which must have nothing left.
func (w *KernelWorld) closeLoop() {
	w.onLoop(func() error {
		if n := w.loop.Len(); n != 0 {
			w.problem("%d descriptors are watched", n)
		}
		if err := w.loop.Check(); err != nil {
			w.problem("the loop: %v", err)
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
func (w *KernelWorld) onLoop(f func() error) error {
	done := make(chan error, 1)
	if err := w.loop.Post(func() { done <- f() }); err != nil {
		return err
	}
	return <-done
}

// kernelWatch is a pipe that a loop watches, and empties.
type kernelWatch struct {
	w    *KernelWorld
	pipe *kernelPipe
	mode watch.Mode // of the loop's goroutine
	gone bool       // of the loop's goroutine

	mu       sync.Mutex
	arrived  *sync.Cond
	fed, got uint64
	first    uint64
}

// Watch has a pipe watched.
func (w *KernelWorld) Watch(mode int) (Watch, error) {
	const first = 7
	pipe, err := newPipe(first, syscall.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	k := &kernelWatch{w: w, pipe: pipe, mode: watch.Mode(mode % 3), first: first}
	k.arrived = sync.NewCond(&k.mu)
	err = w.onLoop(func() error { return w.loop.Add(pipe.FD(), watch.Read, k.mode, k.event) })
	if err != nil {
		_ = pipe.Close()
		return nil, err
	}
	return k, nil
}

// event is called by the loop.
func (k *kernelWatch) event(found watch.Events) {
	if k.gone {
		k.w.problem("an event after the end of a watch: %v", found)
		return
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
		if err := k.w.loop.Modify(k.pipe.FD(), watch.Read, watch.OneShot); err != nil {
			k.w.problem("modify: %v", err)
		}
	}
}

// take judges bytes.
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
		k.mode = watch.Mode(mode % 3)
		return k.w.loop.Modify(k.pipe.FD(), watch.Read, k.mode)
	})
}

// Close closes the pipe in the same turn of the loop, so that its number is used
// again soon.
func (k *kernelWatch) Close() error {
	return k.w.onLoop(func() error {
		if err := k.w.loop.Remove(k.pipe.FD()); err != nil {
			return err
		}
		k.gone = true
		return k.pipe.Close()
	})
}
