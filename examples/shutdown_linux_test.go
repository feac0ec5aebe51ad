// SPDX-License-Identifier: MIT

package examples

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// bin is the directory of the programs, once they are built.
var bin string

func TestMain(m *testing.M) {
	code := ringtest.Main(m)
	_ = os.RemoveAll(bin)
	os.Exit(code)
}

// program is an example that has started, and its files.
type program struct {
	*testing.T
	cmd    *exec.Cmd
	dir    string
	addr   string // where a server listens
	stdin  io.WriteCloser
	stdout *bufio.Reader
	stderr *bytes.Buffer // complete when ended is closed
	ended  chan struct{}
}

// busy are the examples, how each is put to work, and how it ends then.
var busy = []struct {
	name  string
	args  []string // DIR stands for a directory of the test's own
	files func(t *testing.T, dir string)
	work  func(p *program) // returns when the work is under way
	code  int
	left  func(p *program)
}{
	{name: "checksum", args: []string{"DIR"}, files: endless, work: hasFileOpen, code: 130},
	{name: "durable-log", args: []string{"DIR/log"}, work: keepLine, code: 130, left: lineIsKept},
	{name: "echo", args: []string{"-addr", "127.0.0.1:0"}, work: say("hello")},
	{name: "fileserver", args: []string{"-addr", "127.0.0.1:0", "-dir", "DIR"}, work: half("GET / HTTP/1.0\r\n\r\n", "GET / HTTP/1.1\r\nHo")},
	{name: "http-watch", args: []string{"-addr", "127.0.0.1:0"}, work: half("GET / HTTP/1.0\r\n\r\n", "GET / HTTP/1.1\r\nHo")},
	{name: "http2", args: []string{"-addr", "127.0.0.1:0"}, work: halfOverTLS},
	{name: "proxy", args: []string{"-addr", "127.0.0.1:0", "-backends", "127.0.0.1:1"}, work: func(*program) {}},
	{name: "redis", args: []string{"-addr", "127.0.0.1:0"}, work: half("PING\r\n", "*2\r\n$3\r\nGET\r\n$9\r\nnot")},
	{name: "restart", args: []string{"-addr", "127.0.0.1:0"}, work: half("GET / HTTP/1.0\r\n\r\n", "GET / HTTP/1.1\r\nHo")},
	{name: "upload", args: []string{"-addr", "127.0.0.1:0", "-dir", "DIR"}, work: halfUpload, left: nothingLeft},
}

// buildAll builds all programs of busy into bin, once.
func buildAll(t *testing.T) {
	t.Helper()
	if bin != "" {
		return
	}
	var err error
	if bin, err = os.MkdirTemp("", "ringside-examples-"); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-ldflags=-w", "-o", bin+"/")
	for _, b := range busy {
		build.Args = append(build.Args, "./"+b.name)
	}
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestBadOptions starts each server with an argument, such as an address without its option, and with
// values that it cannot use: it says so, and ends with code 2.
func TestBadOptions(t *testing.T) {
	ringtest.NeedTree(t)
	if testing.Short() {
		t.Skip("builds all programs")
	}
	buildAll(t)
	lines := []string{"restart -drain -1s", "http-watch -idle -1s", "redis -idle 0s", "redis -max-memory 0", "upload -max -1"}
	for _, b := range busy {
		if len(b.args) > 1 && b.args[0] == "-addr" {
			lines = append(lines, b.name+" 127.0.0.1:0")
		}
	}
	for _, line := range lines {
		t.Run(line, func(t *testing.T) {
			t.Parallel() // a server that takes the options runs until the context ends
			words := strings.Fields(line)
			args := append(words[1:], "-addr", "127.0.0.1:0")
			if words[1][0] != '-' { // flags end at the first argument
				args = []string{"-addr", "127.0.0.1:0", words[1]}
			}
			ctx, cancel := context.WithTimeout(t.Context(), ringtest.Patience)
			defer cancel()
			cmd := exec.CommandContext(ctx, filepath.Join(bin, words[0]), args...)
			cmd.Dir = t.TempDir()
			said, _ := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != 2 || !strings.HasPrefix(string(said), words[0]+": ") {
				t.Errorf("exit %d, %s", code, said)
			}
		})
	}
}

// TestSignals ends each example while it works: the code is right, nothing is left, and
// it is over within the second that the log tells here, and soon anywhere.
// Promise: examples/servers-end-code
func TestSignals(t *testing.T) {
	ringtest.NeedTree(t)
	if testing.Short() {
		t.Skip("builds all programs")
	}
	buildAll(t)
	for _, b := range busy {
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
			t.Run(b.name+"/"+sig.String(), func(t *testing.T) {
				t.Parallel() // they wait for each other's limits otherwise
				dir := t.TempDir()
				if b.files != nil {
					b.files(t, dir)
				}
				p := start(t, filepath.Join(bin, b.name), dir, b.args)
				b.work(p)
				begin := time.Now()
				if err := p.cmd.Process.Signal(sig); err != nil {
					t.Fatal(err)
				}
				select {
				case <-p.ended:
				case <-time.After(ringtest.Patience):
					t.Fatalf("has not ended after %v", ringtest.Patience)
				}
				t.Logf("ended in %v", time.Since(begin).Round(time.Millisecond))
				if code := p.cmd.ProcessState.ExitCode(); code != b.code {
					t.Errorf("exit %d, want %d: %s", code, b.code, p.stderr)
				}
				if b.left != nil {
					b.left(p)
				}
			})
		}
	}
}

var listening = regexp.MustCompile(`listening on (?:https?://)?([0-9.]+:[0-9]+)`)

// start starts a program, and waits for the address if it is a server.
func start(t *testing.T, path, dir string, args []string) *program {
	t.Helper()
	p := &program{T: t, dir: dir, stderr: &bytes.Buffer{}, ended: make(chan struct{})}
	p.cmd = exec.Command(path)
	for _, a := range args {
		p.cmd.Args = append(p.cmd.Args, strings.ReplaceAll(a, "DIR", dir))
	}
	stdin, stdout, stderr := p.pipe(p.cmd.StdinPipe), p.pipe2(p.cmd.StdoutPipe), p.pipe2(p.cmd.StderrPipe)
	p.stdin, p.stdout = stdin, bufio.NewReader(stdout)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // has ended, unless the test failed
		<-p.ended
	})
	addr := make(chan string, 1)
	go func() {
		defer close(p.ended)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			p.stderr.Write(append(lines.Bytes(), '\n'))
			if m := listening.FindStringSubmatch(lines.Text()); m != nil {
				addr <- m[1]
			}
		}
		_ = p.cmd.Wait() // the code is looked at elsewhere
	}()
	if args[0] != "-addr" {
		return p
	}
	select {
	case p.addr = <-addr:
	case <-p.ended:
		t.Fatalf("ended: %s", p.stderr)
	case <-time.After(ringtest.Patience):
		t.Fatal("does not listen")
	}
	return p
}

func (p *program) pipe(open func() (io.WriteCloser, error)) io.WriteCloser {
	w, err := open()
	p.must(err)
	return w
}

func (p *program) pipe2(open func() (io.ReadCloser, error)) io.ReadCloser {
	r, err := open()
	p.must(err)
	return r
}

func (p *program) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// until waits for a condition.
func (p *program) until(what string, condition func() bool) {
	p.Helper()
	for deadline := time.Now().Add(ringtest.Patience); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			p.Fatalf("waited in vain for %s", what)
		}
	}
}

// dial connects to a server until the test ends.
func (p *program) dial() net.Conn {
	p.Helper()
	c, err := net.Dial("tcp", p.addr)
	p.must(err)
	p.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(ringtest.Patience))
	return c
}

// endless makes a file too long to be read to its end; it has no blocks.
func endless(t *testing.T, dir string) {
	name := filepath.Join(dir, "file")
	if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(name, 1<<40); err != nil {
		t.Fatal(err)
	}
}

// hasFileOpen waits until the program reads the file.
func hasFileOpen(p *program) {
	p.until("the file to be opened", func() bool {
		fds, _ := filepath.Glob("/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/fd/*")
		for _, fd := range fds {
			if target, err := os.Readlink(fd); err == nil && target == filepath.Join(p.dir, "file") {
				return true
			}
		}
		return false
	})
}

// keepLine has a line kept; more may come.
func keepLine(p *program) {
	_, err := io.WriteString(p.stdin, "a line\n")
	p.must(err)
	if number, err := p.stdout.ReadString('\n'); err != nil || number != "1\n" && number != "0\n" {
		p.Fatalf("%q, %v", number, err)
	}
}

func lineIsKept(p *program) {
	out, err := exec.Command(p.cmd.Path, "-print", filepath.Join(p.dir, "log")).Output()
	if err != nil || !strings.HasSuffix(string(out), " a line\n") {
		p.Errorf("%q, %v", out, err)
	}
}

// say sends something, gets it back, and stays connected.
func say(text string) func(p *program) {
	return func(p *program) {
		c := p.dial()
		_, err := io.WriteString(c, text)
		p.must(err)
		got := make([]byte, len(text))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
			p.Fatalf("%q, %v", got, err)
		}
	}
}

// half has two connections: one has its answer and one has sent half a request.
func half(whole, part string) func(p *program) {
	return func(p *program) {
		c := p.dial()
		_, err := io.WriteString(c, part)
		p.must(err)
		other := p.dial()
		_, err = io.WriteString(other, whole)
		p.must(err)
		_, err = other.Read(make([]byte, 100))
		p.must(err)
	}
}

func halfOverTLS(p *program) {
	c := tls.Client(p.dial(), &tls.Config{InsecureSkipVerify: true})
	p.must(c.Handshake())
	_, err := io.WriteString(c, "GET / HTTP/1.1\r\nHo")
	p.must(err)
}

// halfUpload sends half of a file.
func halfUpload(p *program) {
	c := p.dial()
	_, err := io.WriteString(c, "half.bin 1000000\n"+strings.Repeat("x", 500_000))
	p.must(err)
	p.until("the file to grow", func() bool {
		parts, _ := filepath.Glob(filepath.Join(p.dir, ".part-*"))
		return len(parts) == 1
	})
}

func nothingLeft(p *program) {
	entries, err := os.ReadDir(p.dir)
	if err != nil || len(entries) != 0 {
		p.Errorf("left behind: %v, %v", entries, err)
	}
}
