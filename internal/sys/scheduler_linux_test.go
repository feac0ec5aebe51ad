// SPDX-License-Identifier: MIT

package sys

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestRawCallsKeepTheNetwork runs a process in which all goroutines wait for the network. One gets
// data and then makes raw calls only. Another one must get its data nevertheless: see wakeScheduler.
func TestRawCallsKeepTheNetwork(t *testing.T) {
	const variable = "RINGSIDE_RAW_CALLS"
	if os.Getenv(variable) != "" {
		makeRawCalls()
		return
	}
	child := exec.Command(os.Args[0], "-test.run=^TestRawCallsKeepTheNetwork$")
	child.Env = append(os.Environ(), variable+"=1", "GOMAXPROCS=2")
	out, err := child.StdoutPipe()
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	}()
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]net.Conn
	for i := range conns {
		if conns[i], err = net.Dial("tcp", strings.TrimSpace(address)); err != nil {
			t.Fatal(err)
		}
		defer conns[i].Close()
	}
	// The processor time of the child, in ticks of 10 ms, shows when it sleeps and when it runs.
	used := func() (ticks int) {
		p, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", child.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		_, fields, _ := strings.Cut(string(p), ") ")
		f := strings.Fields(fields)
		var user, system int
		fmt.Sscan(f[11], &user)
		fmt.Sscan(f[12], &system)
		return user + system
	}
	for quiet := 0; quiet < 20; quiet++ {
		before := used()
		time.Sleep(10 * time.Millisecond)
		if used() != before {
			quiet = 0
		}
	}
	before := used()
	if _, err := conns[0].Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	for used() < before+5 {
		time.Sleep(time.Millisecond)
	}
	_ = conns[1].SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := conns[1].Write([]byte{2}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conns[1], make([]byte, 1)); err != nil {
		t.Errorf("beside a goroutine that makes raw calls: %v", err)
	}
}

// makeRawCalls echoes a byte on its second connection, while a goroutine makes raw calls on the
// first one.
func makeRawCalls() {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	fmt.Println(l.Addr())
	first, err := l.Accept()
	must(err)
	second, err := l.Accept()
	must(err)
	raw, err := first.(*net.TCPConn).SyscallConn()
	must(err)
	var over atomic.Bool
	go func() { // waits without a call that enters the scheduler
		_ = raw.Read(func(fd uintptr) bool {
			p := make([]byte, 1)
			if n, _ := SockRecv(int(fd), p, 0); n < 1 {
				return false
			}
			for !over.Load() {
				_, _ = SockRecv(int(fd), p, 0)
			}
			return true
		})
	}()
	p := make([]byte, 1)
	_, err = second.Read(p)
	must(err)
	_, err = second.Write(p)
	must(err)
	over.Store(true)
	_, _ = second.Read(p) // until the parent has the byte
}
