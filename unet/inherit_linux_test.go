// SPDX-License-Identifier: MIT

package unet_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ringside-io/ringside/unet"
)

// inheritEnv makes TestInheritedListener the process whose listener is inherited.
const inheritEnv = "RINGSIDE_INHERIT"

// accepting is a program in another language that accepts on descriptor 3. It makes the
// descriptor blocking, for all processes that share the listener.
const accepting = `
import signal, socket
signal.alarm(120)  # should the test be killed
s = socket.socket(fileno=3)
s.setblocking(True)
print("ready", flush=True)
while True:
    c, _ = s.accept()
    c.sendall(b"python")
    c.close()
`

// TestInheritedListener shares a listener with a program that makes it blocking. The
// process that shares it must continue: a raw call that blocks stops the process at the
// next garbage collection. The test runs in a child process, because a stopped process
// cannot report its failure.
// Promise: unet/system-call-blocks
func TestInheritedListener(t *testing.T) {
	if job := os.Getenv(inheritEnv); job != "" {
		shareListener(t, job)
		return
	}
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs the program python3")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range modes() {
		for _, network := range []string{"tcp", "unix"} {
			t.Run(network+"/"+mode.String(), func(t *testing.T) {
				newSystem(t, mode) // or skip the test
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				cmd := exec.CommandContext(ctx, self, "-test.run=^TestInheritedListener$", "-test.v")
				cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s", inheritEnv, mode, network))
				cmd.WaitDelay = time.Second // the program's output goes there
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%v, %v\n%s", err, ctx.Err(), out)
				}
			})
		}
	}
}

func shareListener(t *testing.T, job string) {
	var mode int
	var network string
	if _, err := fmt.Sscan(job, &mode, &network); err != nil {
		t.Fatal(err)
	}
	l := listen(t, newSystem(t, unet.Mode(mode)), network)
	f, err := l.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command("python3", "-c", accepting)
	child.ExtraFiles = []*os.File{f}
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	defer child.Process.Kill()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	accepted := start(func() error { return acceptAll(l) })
	time.Sleep(10 * time.Millisecond) // so that Accept waits, most of the time
	runtime.GC()
	for range 50 {
		runtime.GC()
		whoAccepts(t, l.Addr())
	}
	_ = child.Process.Kill()
	_ = child.Wait()
	for whoAccepts(t, l.Addr()) != "ours" { // no connection is on its way to the child
	}
	if unet.Mode(mode) == unet.ModeNet {
		// Its Accept waits in the kernel, and its Close waits for Accept. Exit skips the
		// removal of the socket's directory.
		_ = os.RemoveAll(filepath.Dir(t.TempDir()))
		os.Exit(0)
	}
	if err := soon(t, "Close", start(l.Close)); err != nil {
		t.Error(err)
	}
	if err := soon(t, "Accept", accepted); !strings.Contains(err.Error(), "closed") {
		t.Error(err)
	}
}

func acceptAll(l net.Listener) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		_, _ = io.WriteString(c, "ours")
		_ = c.Close()
	}
}

// whoAccepts connects and returns which process accepted.
func whoAccepts(t *testing.T, to net.Addr) string {
	t.Helper()
	c, err := net.Dial(to.Network(), to.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	who, err := io.ReadAll(c)
	if string(who) != "ours" && string(who) != "python" {
		t.Fatalf("%q, %v", who, err)
	}
	return string(who)
}

// TestBlockingListenerKeepsDeadlines clears O_NONBLOCK, as Fd of a file does: Accept must
// behave as before.
// Promise: unet/system-call-blocks
func TestBlockingListenerKeepsDeadlines(t *testing.T) {
	for _, mode := range modes()[1:] {
		t.Run(mode.String(), func(t *testing.T) {
			l := listen(t, newSystem(t, mode), "tcp")
			f, err := l.(interface{ File() (*os.File, error) }).File()
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			f.Fd()
			_ = l.(interface{ SetDeadline(time.Time) error }).SetDeadline(time.Now().Add(10 * time.Millisecond))
			_, err = l.Accept()
			if ne, ok := err.(net.Error); !ok || !ne.Timeout() {
				t.Fatalf("past the deadline: %v", err)
			}
			_ = l.(interface{ SetDeadline(time.Time) error }).SetDeadline(time.Time{})
			for range 3 {
				warm(t, l)
				c, err := l.Accept()
				if err != nil {
					t.Fatal(err)
				}
				_ = c.Close()
			}
		})
	}
}
