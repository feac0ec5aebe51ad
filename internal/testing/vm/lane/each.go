// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"errors"
	"io"
	"sync"

	"github.com/ringside-io/ringside/internal/testing/vm"
)

// each runs f for every kernel, several at once: an emulated machine with two
// processors keeps little more than one busy. The output is printed kernel by kernel,
// in order.
func (l *lane) each(kernels []vm.Kernel, f func(one *lane, k vm.Kernel) error) error {
	lanes, errs := make([]lane, len(kernels)), make([]error, len(kernels))
	outs, ended := make([]held, len(kernels)), make([]chan struct{}, len(kernels))
	turn := make(chan struct{}, max(1, l.opt.atOnce))
	for i, k := range kernels {
		lanes[i] = lane{opt: l.opt, out: &outs[i]}
		ended[i] = make(chan struct{})
		turn <- struct{}{}
		if i == 0 {
			outs[i].release(l.out)
		}
		go func() {
			defer close(ended[i])
			errs[i] = f(&lanes[i], k)
			<-turn
		}()
	}
	for i := range kernels {
		outs[i].release(l.out)
		<-ended[i]
		l.passed, l.failed = l.passed+lanes[i].passed, l.failed+lanes[i].failed
	}
	return errors.Join(errs...)
}

// held keeps output until it is released, and passes on later output.
type held struct {
	mu   sync.Mutex
	kept bytes.Buffer
	to   io.Writer
}

func (h *held) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.to == nil {
		return h.kept.Write(p)
	}
	return h.to.Write(p)
}

func (h *held) release(to io.Writer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, _ = h.kept.WriteTo(to)
	h.to = to
}
