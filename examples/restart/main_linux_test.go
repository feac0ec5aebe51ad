// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// runEnv makes the test's program the server. Its value is a file: while that exists, a
// process that is to take over fails, or never becomes ready if the file has content.
const runEnv = "RINGSIDE_RESTART_SERVER"

func TestMain(m *testing.M) {
	if broken := os.Getenv(runEnv); broken != "" {
		if how, err := os.ReadFile(broken); err == nil && os.Getenv("LISTEN_FDS") != "" {
			if len(how) > 0 {
				fmt.Fprintln(os.Stderr, "restart: the new process is not getting ready")
				time.Sleep(time.Hour)
			}
			os.Exit(3)
		}
		main()
		return
	}
	os.Exit(ringtest.Main(m))
}

const (
	restarts = 3
	patience = time.Minute
)

// client is one connection that repeats a request. It retries nothing: each request
// that is not answered counts.
type client struct {
	addr string
	conn net.Conn
	in   *bufio.Reader
}

// get makes one request and returns the number of the process that answered it.
func (c *client) get() (int, error) {
	if c.conn == nil {
		conn, err := net.DialTimeout("tcp", c.addr, patience)
		if err != nil {
			return 0, err
		}
		_ = conn.SetDeadline(time.Now().Add(patience))
		c.conn, c.in = conn, bufio.NewReader(conn)
	}
	if _, err := io.WriteString(c.conn, "GET /page HTTP/1.1\r\nHost: test\r\n\r\n"); err != nil {
		return 0, err
	}
	r, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return 0, err
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != 200 || string(body) != "served /page\n" {
		return 0, fmt.Errorf("status %d, %q, %v", r.StatusCode, body, err)
	}
	if r.Close {
		c.close()
	}
	return strconv.Atoi(r.Header.Get("Process"))
}

func (c *client) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// testServer is the server of a test, whichever process that is.
type testServer struct {
	addr   string
	broken string      // see runEnv
	failed chan string // what a process says that could not be replaced
}

// startServer starts the server in a process of its own. All processes of the test end
// with it.
func startServer(t *testing.T) *testServer {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return startProgram(t, self)
}

func startProgram(t *testing.T, path string) *testServer {
	t.Helper()
	s := &testServer{broken: filepath.Join(t.TempDir(), "broken"), failed: make(chan string, 1)}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "-addr", "127.0.0.1:0", "-drain", "20s")
	cmd.Env = append(os.Environ(), runEnv+"="+s.broken)
	cmd.Stderr = w
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	logged := make(chan string, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended) // when the last process that has the pipe has ended
		lines := bufio.NewScanner(r)
		for lines.Scan() {
			t.Log(lines.Text())
			if strings.HasPrefix(lines.Text(), "restart: ") {
				s.failed <- lines.Text()
				continue
			}
			select {
			case logged <- lines.Text():
			default:
			}
		}
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		_ = cmd.Wait()
		select {
		case <-ended:
		case <-time.After(patience):
			t.Error("processes are left")
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			<-ended
		}
		_ = r.Close()
	})
	select {
	case line := <-logged:
		_, s.addr, _ = strings.Cut(line, "http://")
		s.addr, _, _ = strings.Cut(s.addr, ",")
	case <-time.After(patience):
	}
	if s.addr == "" {
		t.Fatal("the server does not say where it listens")
	}
	return s
}

// restart has the server replaced and returns when new connections reach another
// process.
func restart(t *testing.T, addr string) {
	t.Helper()
	was, err := process(addr)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(was, syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); ; {
		is, err := process(addr)
		if err != nil {
			t.Fatalf("a connection during the restart: %v", err)
		}
		if is != was {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the server has not restarted")
		}
		time.Sleep(time.Millisecond)
	}
}

func process(addr string) (int, error) {
	c := client{addr: addr}
	defer c.close()
	return c.get()
}

// TestNoRequestIsLost restarts the server under load, several times.
// Promise: unet/server-replaces-process
func TestNoRequestIsLost(t *testing.T) {
	addr := startServer(t).addr
	var requests, failed atomic.Int64
	var stop atomic.Bool
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			c := client{addr: addr}
			defer c.close()
			for !stop.Load() {
				if _, err := c.get(); err != nil {
					failed.Add(1)
					t.Errorf("a request failed: %v", err)
					c.close()
				}
				requests.Add(1)
				if i%2 == 0 { // half of them connect for each request
					c.close()
				}
			}
		})
	}
	for range restarts {
		restart(t, addr)
		for begin := requests.Load(); requests.Load() < begin+300 && failed.Load() == 0; {
			time.Sleep(time.Millisecond)
		}
	}
	stop.Store(true)
	all.Wait()
	t.Logf("%d requests, %d failed, %d restarts", requests.Load(), failed.Load(), restarts)
}

// generators are load generators of others, with what each prints of failures.
var generators = []struct {
	name   string
	args   []string
	total  *regexp.Regexp
	failed *regexp.Regexp
}{
	{"wrk", []string{"-t", "2", "-c", "20", "-d", "5s"}, regexp.MustCompile(`(\d+) requests in`),
		regexp.MustCompile(`(?m)^ *(Socket errors: .*|Non-2xx or 3xx responses: .*)$`)},
	{"ab", []string{"-q", "-k", "-c", "20", "-t", "5", "-n", "100000000"}, regexp.MustCompile(`Complete requests: +(\d+)`),
		regexp.MustCompile(`(?m)^(Failed requests: +[1-9].*|Non-2xx responses: .*|apr_.*)$`)},
}

// TestNoRequestOfOthersIsLost does that under load of wrk and ab.
// Promise: unet/server-replaces-process
func TestNoRequestOfOthersIsLost(t *testing.T) {
	for _, g := range generators {
		t.Run(g.name, func(t *testing.T) {
			if _, err := exec.LookPath(g.name); err != nil {
				t.Skipf("needs the program %s (Debian: wrk, apache2-utils)", g.name)
			}
			addr := startServer(t).addr
			cmd := exec.Command(g.name, append(g.args, "http://"+addr+"/page")...)
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- cmd.Wait() }()
			for range restarts {
				time.Sleep(time.Second) // spread over the generator's time
				restart(t, addr)
			}
			if err := <-done; err != nil {
				t.Errorf("%v", err)
			}
			total := g.total.FindSubmatch(out.Bytes())
			if failed := g.failed.Find(out.Bytes()); failed != nil || total == nil {
				t.Errorf("%s\n%s", failed, out.Bytes())
				return
			}
			t.Logf("%s requests, none failed, %d restarts", total[1], restarts)
		})
	}
}

// TestRestartThatFails has the new process end before it is ready: the old one goes on,
// and can be replaced later.
// Promise: unet/server-replaces-process
func TestRestartThatFails(t *testing.T) {
	s := startServer(t)
	was, err := process(s.addr)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.broken, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(was, syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	select {
	case line := <-s.failed:
		if !strings.Contains(line, "not ready: exit status 3") {
			t.Error(line)
		}
	case <-time.After(patience):
		t.Fatal("the process does not say that it could not be replaced")
	}
	if is, err := process(s.addr); err != nil || is != was {
		t.Errorf("process %d answers, before it %d, %v", is, was, err)
	}
	if err := os.Remove(s.broken); err != nil {
		t.Fatal(err)
	}
	restart(t, s.addr)
}

// TestEndDuringRestart ends the server while it waits for a new process: both end, long before the
// time of the new process is over.
func TestEndDuringRestart(t *testing.T) {
	s := startServer(t)
	was, err := process(s.addr)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.broken, []byte("hang"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(was, syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.failed: // it says that it is there
	case <-time.After(patience):
		t.Fatal("there is no new process")
	}
	if err := syscall.Kill(was, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(15 * time.Second); ; time.Sleep(time.Millisecond) {
		c, err := net.DialTimeout("tcp", s.addr, patience)
		if err != nil {
			return // no process has the listener any more
		}
		_ = c.Close()
		if time.Now().After(end) {
			t.Fatal("the server still listens")
		}
	}
}

// TestReplacedTwice sends SIGHUP to a process that has been replaced: it goes on serving its
// connections.
func TestReplacedTwice(t *testing.T) {
	s := startServer(t)
	c := client{addr: s.addr}
	defer c.close()
	was, err := c.get()
	if err != nil {
		t.Fatal(err)
	}
	restart(t, s.addr)
	if err := syscall.Kill(was, syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	_ = c.conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	if _, err := c.in.Peek(1); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("an idle connection after the second SIGHUP: %v", err)
	}
	_ = c.conn.SetReadDeadline(time.Now().Add(patience))
	if is, err := c.get(); err != nil || is != was {
		t.Errorf("process %d answers, want %d, %v", is, was, err)
	}
}

// closes is a listener whose Close calls a function.
type closes struct {
	net.Listener
	call func()
}

func (c closes) Close() error {
	c.call()
	return nil
}

// TestLastConnection has the only connection end, and another one accepted, before the listener is
// closed: the server ends when the second one has ended.
func TestLastConnection(t *testing.T) {
	s := newServer()
	shutdown := make(chan int64, 1)
	var open atomic.Int64
	s.http.RegisterOnShutdown(func() { shutdown <- open.Load() })
	accept := func() { open.Add(1); s.count(nil, http.StateNew) }
	end := func() { open.Add(-1); s.count(nil, http.StateClosed) }
	served := make(chan error, 1)
	l := closes{call: func() {
		accept()
		end()
		accept()
		served <- http.ErrServerClosed
		time.AfterFunc(100*time.Millisecond, end)
	}}
	if err := s.leave(l, served, patience, nil); err != nil {
		t.Fatal(err)
	}
	if open := <-shutdown; open != 0 {
		t.Errorf("the server ends while %d connections are open", open)
	}
}

// TestNewVersion puts another program at the path of the server, in the two ways in which that is
// done, and restarts the server.
// Promise: unet/server-replaces-process
func TestNewVersion(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	copyTo := func(path string) {
		t.Helper()
		program, err := os.ReadFile(self)
		must(err)
		must(os.WriteFile(path, program, 0o700))
	}
	for name, test := range map[string]struct {
		install, upgrade func(dir string)
		want             string
	}{
		"the old file renamed": {
			install: func(dir string) { copyTo(filepath.Join(dir, "server")) },
			upgrade: func(dir string) {
				must(os.Rename(filepath.Join(dir, "server"), filepath.Join(dir, "old")))
				copyTo(filepath.Join(dir, "server"))
			},
			want: "server",
		},
		"a symbolic link changed": {
			install: func(dir string) {
				copyTo(filepath.Join(dir, "v1"))
				must(os.Symlink("v1", filepath.Join(dir, "server")))
			},
			upgrade: func(dir string) {
				copyTo(filepath.Join(dir, "v2"))
				must(os.Symlink("v2", filepath.Join(dir, "new")))
				must(os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "server")))
			},
			want: "v2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := filepath.EvalSymlinks(t.TempDir())
			must(err)
			test.install(dir)
			s := startProgram(t, filepath.Join(dir, "server"))
			test.upgrade(dir)
			restart(t, s.addr)
			pid, err := process(s.addr)
			must(err)
			got, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
			must(err)
			if want := filepath.Join(dir, test.want); got != want {
				t.Errorf("the new process runs %s, not %s", got, want)
			}
		})
	}
}
