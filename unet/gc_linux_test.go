// SPDX-License-Identifier: MIT

package unet_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"sync"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/unet"
)

// deepRead reads at the bottom of a stack that has to grow and move, into an array on that
// stack unless Read makes it escape.
func deepRead(c net.Conn, want byte, depth int) error {
	var p [512]byte
	if depth > 0 {
		return deepRead(c, want, depth-1)
	}
	if _, err := io.ReadFull(c, p[:]); err != nil {
		return err
	}
	if !bytes.Equal(p[:], bytes.Repeat([]byte{want}, len(p))) {
		return fmt.Errorf("received other bytes than were sent: %x", p[:8])
	}
	return nil
}

// TestCollectorAndStacks runs the collector continually, with little memory, and stacks
// move while readers wait for data.
func TestCollectorAndStacks(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(1))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(8 << 20))
	for _, mode := range []unet.Mode{unet.ModeRing, unet.ModePlain} {
		t.Run(mode.String(), func(t *testing.T) {
			s := newSystem(t, mode)
			var wg sync.WaitGroup
			for g := range ringtest.Rounds(32, 8) {
				a, b := pair(t, s, "tcp")
				wg.Go(func() {
					for i := range 20 {
						if err := deepRead(a, byte(g+i), i*3%40); err != nil {
							t.Error(err)
							return
						}
					}
				})
				wg.Go(func() {
					for i := range 20 {
						if _, err := b.Write(bytes.Repeat([]byte{byte(g + i)}, 512)); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
		})
	}
}
