// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// served is a running "ringside serve".
type served struct {
	serving
	cmd    *exec.Cmd
	stderr bytes.Buffer
}

func startServe(t *testing.T, env string, args ...string) *served {
	t.Helper()
	s := &served{cmd: program(t, append([]string{"serve", "--addr", "127.0.0.1:0", "--json"}, args...)...)}
	s.cmd.Env = append(s.cmd.Env, env)
	s.cmd.Stderr = &s.stderr
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &s.serving)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, line)
	}
	return s
}

// stop sends a signal to the program and returns its exit code.
func (s *served) stop(t *testing.T, sig syscall.Signal) int {
	t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	_ = s.cmd.Wait() // The exit code is checked.
	return s.cmd.ProcessState.ExitCode()
}

func bigFile(t *testing.T, size int) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "big.jpg"), bytes.Repeat([]byte("x"), size), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// dialServe opens a connection and sends the beginning of a request.
func dialServe(t *testing.T, addr, begin string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, begin); err != nil {
		t.Fatal(err)
	}
	return c
}

// wantRefused waits until connections are refused.
func wantRefused(t *testing.T, addr string) {
	t.Helper()
	eventually(t, "the listener to close", func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	})
}

// TestServeLetsDownloadsEnd signals the program during a download that is larger than the socket's
// buffers, while other connections are idle.
func TestServeLetsDownloadsEnd(t *testing.T) {
	const size = 64 << 20
	dir := bigFile(t, size)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		s := startServe(t, "", dir, "--grace", "1m")
		dialServe(t, s.Addr, "")
		dialServe(t, s.Addr, "GET /big.jpg HT")
		asked := dialServe(t, s.Addr, "HEAD /big.jpg HTTP/1.1\r\nHost: h\r\n\r\n")
		if _, err := asked.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		res, err := http.Get(s.URL + "big.jpg")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if err := s.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		wantRefused(t, s.Addr)
		if n, err := io.Copy(io.Discard, res.Body); n != size || err != nil {
			t.Errorf("%d bytes, %v", n, err)
		}
		_ = s.cmd.Wait() // The exit code is checked.
		if code := s.cmd.ProcessState.ExitCode(); code != exitOK || s.stderr.Len() != 0 {
			t.Errorf("exit %d, %s", code, s.stderr.String())
		}
	}
}

// TestServeSecondSignal sends a second signal, after which the program does not wait for
// the client that the first signal gave time.
func TestServeSecondSignal(t *testing.T) {
	s := startServe(t, "", bigFile(t, 64<<20), "--grace", "1m")
	stalled := dialServe(t, s.Addr, "GET /big.jpg HTTP/1.1\r\nHost: h\r\n\r\n")
	if _, err := stalled.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, s.Addr)
	s.stop(t, syscall.SIGTERM)
	if status := s.cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGTERM {
		t.Errorf("ended by %v", s.cmd.ProcessState)
	}
}

// serves waits until the program serves, and opens idle connections.
func serves(t *testing.T, r *running, _ string) {
	t.Helper()
	addr := servedAt(t, r)
	dialServe(t, addr, "")
	dialServe(t, addr, "GET / HTTP/1.1\r\nHost")
	if _, err := dialServe(t, addr, "GET / HTTP/1.1\r\nHost: h\r\n\r\n").Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
}

// servesStalled waits until the program sends to a client that does not read.
func servesStalled(t *testing.T, r *running, _ string) {
	t.Helper()
	addr := servedAt(t, r)
	var big string
	for _, v := range r.cmd.Env { // the last one counts, because this process may also have one
		if dir, ok := strings.CutPrefix(v, "TMPDIR="); ok {
			big = filepath.Join(dir, "big.jpg")
		}
	}
	if err := errors.Join(os.WriteFile(big, nil, 0o600), os.Truncate(big, 64<<20)); err != nil {
		t.Fatal(err)
	}
	const want = "HTTP/1.1 200"
	status := make([]byte, len(want))
	if _, err := io.ReadFull(dialServe(t, addr, "GET /big.jpg HTTP/1.1\r\nHost: h\r\n\r\n"), status); err != nil || string(status) != want {
		t.Fatalf("answered %q, %v", status, err)
	}
	if err := os.Remove(big); err != nil { // the connection is open
		t.Fatal(err)
	}
}

// servedAt reads the address at which the program serves.
func servedAt(t *testing.T, r *running) string {
	t.Helper()
	var s serving
	if err := json.NewDecoder(r.out).Decode(&s); err != nil {
		t.Fatalf("%v: %s", err, r.stderr.String())
	}
	return s.Addr
}

// TestServeCutsOff ends the program with a client that stops reading.
func TestServeCutsOff(t *testing.T) {
	s := startServe(t, "", bigFile(t, 64<<20), "--grace", "10ms")
	res, err := http.Get(s.URL + "big.jpg")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if code := s.stop(t, syscall.SIGINT); code != exitFailure || !strings.Contains(s.stderr.String(), "cut off") {
		t.Errorf("exit %d, %s", code, s.stderr.String())
	}
}

// TestServeWithout checks that the program runs without io_uring and reports that.
func TestServeWithout(t *testing.T) {
	s := startServe(t, "RINGSIDE_BACKEND=plain", bigFile(t, 100))
	if s.Sockets != "plain" || s.SocketsReason == "" || s.Files != "plain" || s.FilesReason == "" {
		t.Errorf("%+v", s.serving)
	}
	res, err := http.Get(s.URL + "big.jpg")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if b, err := io.ReadAll(res.Body); len(b) != 100 || err != nil {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if code := s.stop(t, syscall.SIGTERM); code != exitOK {
		t.Errorf("exit %d, %s", code, s.stderr.String())
	}
}

// TestServeClients downloads with common client programs, resumes downloads, and makes conditional
// requests.
func TestServeClients(t *testing.T) {
	dir := bigFile(t, 3<<20)
	text := strings.Repeat("some text. ", 1000)
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(filepath.Join(dir, "big.jpg"))
	if err != nil {
		t.Fatal(err)
	}
	s := startServe(t, "", dir)
	for name, args := range map[string][]string{
		"curl": {"-sSf", "--noproxy", "*", "-C", "-", "-o"}, "wget": {"-q", "--no-proxy", "-c", "-O"},
	} {
		t.Run(name, func(t *testing.T) {
			path, err := exec.LookPath(name)
			if err != nil {
				t.Skipf("%s: %v", name, err)
			}
			got := filepath.Join(t.TempDir(), "got")
			if err := os.WriteFile(got, whole[:1<<20], 0o644); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command(path, append(args, got, s.URL+"big.jpg")...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if b, err := os.ReadFile(got); err != nil || !bytes.Equal(b, whole) {
				t.Errorf("%d bytes, %v", len(b), err)
			}
			if name != "curl" {
				return
			}
			out, err := exec.Command(path, "-sSf", "--noproxy", "*", "--compressed", s.URL+"a.txt", s.URL+"a.txt").Output()
			if err != nil || string(out) != text+text {
				t.Errorf("compressed: %d bytes, %v", len(out), err)
			}
		})
	}
	if code := s.stop(t, syscall.SIGTERM); code != exitOK {
		t.Errorf("exit %d, %s", code, s.stderr.String())
	}
}
