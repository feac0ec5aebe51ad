// SPDX-License-Identifier: MIT

package unet_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"runtime/metrics"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/unet"
)

// idleConns opens n connections and parks a goroutine in a Read on each. It returns a
// function that ends all of them.
func idleConns(t testing.TB, s *unet.System, n int) (end func()) {
	t.Helper()
	l := listen(t, s, "tcp")
	addr := syscall.SockaddrInet4{Port: l.Addr().(*net.TCPAddr).Port, Addr: [4]byte{127, 0, 0, 1}}
	peers := make([]int, 0, n)
	var readers sync.WaitGroup
	for range n {
		fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		peers = append(peers, fd)
		if err := syscall.Connect(fd, &addr); err != nil {
			t.Fatal(err)
		}
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		readers.Go(func() {
			defer c.Close()
			_, _ = c.Read(make([]byte, 64))
		})
	}
	parked := []metrics.Sample{{Name: "/sched/goroutines/waiting:goroutines"}}
	for metrics.Read(parked); parked[0].Value.Uint64() < uint64(n); metrics.Read(parked) {
		runtime.Gosched()
	}
	return func() {
		for _, fd := range peers {
			_ = syscall.Close(fd)
		}
		readers.Wait()
		_ = l.Close()
	}
}

// idleBytes measures the memory of an idle connection and its goroutine: heap, stacks, and
// the runtime's other memory. It does so in a new process, which has no memory left from
// earlier connections.
func idleBytes(t testing.TB, mode unet.Mode, n int) float64 {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestIdleMemory$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d", idleEnv, mode, n))
	out, err := cmd.Output()
	var bytes float64
	if _, scanErr := fmt.Sscanf(string(out), "%g bytes", &bytes); err != nil || scanErr != nil {
		t.Fatalf("%v, %v: %s", err, scanErr, out)
	}
	return bytes
}

// idleEnv makes TestIdleMemory the process that measures.
const idleEnv = "RINGSIDE_IDLE"

func measureIdle(t *testing.T, job string) {
	var mode, n int
	if _, err := fmt.Sscan(job, &mode, &n); err != nil {
		t.Fatal(err)
	}
	sys.FDTrace = nil // the race detector stores each descriptor
	s := newSystem(t, unet.Mode(mode))
	idleConns(t, s, 10)() // memory that is allocated once does not count
	before := inUse()
	idleConns(t, s, n)
	fmt.Printf("%g bytes\n", float64(inUse()-before)/float64(n))
	os.Exit(0)
}

func inUse() int64 {
	runtime.GC()
	runtime.GC() // memory that finalizers and pools held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse + m.OtherSys)
}

// TestIdleMemory compares the memory of an idle connection with that of package net.
func TestIdleMemory(t *testing.T) {
	if job := os.Getenv(idleEnv); job != "" {
		measureIdle(t, job)
	}
	if testing.Short() {
		t.Skip("opens many connections")
	}
	const n = 3000
	std := idleBytes(t, unet.ModeNet, n)
	for _, mode := range modes()[1:] {
		t.Run(mode.String(), func(t *testing.T) {
			newSystem(t, mode) // or skip the test
			got := idleBytes(t, mode, n)
			for range 4 { // the figure varies by as much as is permitted
				if got <= 1.05*std {
					break
				}
				got = min(got, idleBytes(t, mode, n))
			}
			if got > 1.05*std {
				t.Errorf("an idle connection holds %.0f bytes, package net's %.0f", got, std)
			} else {
				t.Logf("%.0f bytes, package net's %.0f", got, std)
			}
		})
	}
}

// BenchmarkIdleConnections measures the memory of 10,000 idle connections, or of as many as
// the process has descriptors for.
func BenchmarkIdleConnections(b *testing.B) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		b.Fatal(err)
	}
	n := int(min(10_000, limit.Cur/2-100))
	for _, mode := range modes() {
		b.Run(mode.String(), func(b *testing.B) {
			for b.Loop() {
				b.ReportMetric(idleBytes(b, mode, n), "B/conn")
				b.ReportMetric(float64(n), "conns")
			}
		})
	}
}

// TestIdleSleeps checks that connections without traffic use no processor time.
func TestIdleSleeps(t *testing.T) {
	if testing.Short() {
		t.Skip("waits")
	}
	for _, mode := range modes()[1:] {
		t.Run(mode.String(), func(t *testing.T) {
			end := idleConns(t, newSystem(t, mode), 100)
			defer end()
			if used := quietest(0.25, 300*time.Millisecond); used > 0.25 {
				t.Errorf("idle, the process uses %.0f%% of a processor", used*100)
			}
		})
	}
}
