// SPDX-License-Identifier: MIT

//go:build !linux

package uring_test

import (
	"testing"

	"github.com/ringside-io/ringside/uring"
	"time"
)

// The helpers of setup_linux_test.go, so that the tests compile. No ring opens on these
// systems, and every test that needs one skips before it calls a helper.

const notLinux = "not on Linux"

func ctlPipe(t testing.TB) (rd, wr int)                         { panic(notLinux) }
func ctlTCP(t testing.TB) (a, b int)                            { panic(notLinux) }
func ctlPackets(t testing.TB) (a, b int)                        { panic(notLinux) }
func ctlWrite(t testing.TB, fd int, data []byte)                { panic(notLinux) }
func ctlShutdown(t testing.TB, fd int)                          { panic(notLinux) }
func ctlEventFD(t testing.TB) int                               { panic(notLinux) }
func ctlEventCount(t testing.TB, fd int) uint64                 { panic(notLinux) }
func ctlOpen(t testing.TB, path string, flags int) int          { panic(notLinux) }
func ctlDirectFile(t testing.TB, fill byte) int                 { panic(notLinux) }
func ctlClose(t testing.TB, fd int)                             { panic(notLinux) }
func ctlThreads(t testing.TB, prefix string) []int              { panic(notLinux) }
func ctlCPUs(t testing.TB, tid int) []int                       { panic(notLinux) }
func ctlRingMappings(t testing.TB) []int                        { panic(notLinux) }
func ctlShown(t testing.TB, r *uring.Ring) uint32               { panic(notLinux) }
func ctlHugePages(t testing.TB, n int) bool                     { panic(notLinux) }
func ctlClock(t testing.TB, id uint32) time.Duration            { panic(notLinux) }
func ctlThreadID() int                                          { panic(notLinux) }
func ctlHarass(t testing.TB, tid int) func() int                { panic(notLinux) }
func ctlAsUser(t testing.TB, f func())                          { panic(notLinux) }
func ctlLoopback(t testing.TB) int                              { panic(notLinux) }
func ctlUnpopulated(t testing.TB, size int, f func(mem []byte)) { panic(notLinux) }
func ctlFIFO(t testing.TB) string                               { panic(notLinux) }
func ctlSearchable(t testing.TB, dir string)                    { panic(notLinux) }
func ctlMemory(t testing.TB) int                                { panic(notLinux) }

const (
	ctlNobody      = 0
	ctlEBADFD      = 0
	ctlMsgDontWait = 0
	ctlMsgWaitAll  = 0

	ctlPopulateWrite = 0
)
