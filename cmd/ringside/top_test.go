// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"expvar"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// TestTop watches a server that counts its requests.
func TestTop(t *testing.T) {
	requests := published("test_requests", expvar.NewInt)
	published("test_backend", expvar.NewString).Set("io_uring")
	mux := http.NewServeMux()
	mux.HandleFunc(varsPath, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(10)
		expvar.Handler().ServeHTTP(w, r)
	})
	s := httptest.NewServer(mux)
	defer s.Close()
	address := s.Listener.Addr().String()
	names := []string{address, s.URL + varsPath}
	if runtime.GOOS == "linux" {
		names = append(names, strconv.Itoa(os.Getpid()))
		ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
		if err != nil {
			t.Fatal(err)
		}
		inner := &http.Server{Handler: mux}
		defer inner.Close()
		go func() { _ = inner.Serve(ln) }()
		names = append(names, ln.Addr().String())
	}
	line := regexp.MustCompile(`(?m)^ *(\d+) +(\d+\.\d) +test_requests$`)
	for _, name := range names {
		var out, errs bytes.Buffer
		code := run(t.Context(), []string{"top", name, "--count", "2", "--every", "20ms"}, &out, &errs)
		if found := line.FindAllString(out.String(), -1); code != exitOK || len(found) != 2 ||
			!strings.Contains(out.String(), "test_backend: io_uring\n") || strings.Contains(out.String(), "memstats") {
			t.Errorf("top %s: exit %d, %q\n%s", name, code, &errs, &out)
		}
	}
	var out bytes.Buffer
	if code := run(t.Context(), []string{"top", address, "--all"}, &out, &out); code != exitOK || !strings.Contains(out.String(), "memstats.Mallocs") {
		t.Errorf("all: exit %d\n%s", code, &out)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if code := run(ctx, []string{"top", address, "--count", "1000000", "--every", "5ms"}, onWrite(cancel), &out); code != exitOK {
		t.Errorf("interrupted: exit %d", code)
	}
}

// published returns the variable of a name, which an earlier run of the test may have published.
func published[V expvar.Var](name string, add func(string) V) V {
	if v, ok := expvar.Get(name).(V); ok {
		return v
	}
	return add(name)
}

// onWrite is a writer that drops what it gets and calls a function.
type onWrite func()

func (f onWrite) Write(p []byte) (int, error) {
	f()
	return len(p), nil
}

// TestTopPrintsNoControls watches a program whose variables, and another whose answer, have control
// characters: a terminal would obey them.
func TestTopPrintsNoControls(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc(varsPath, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"title": "\u001b]0;owned\u0007", "lines": "a\nb", "\u001b[2Jcount\t": 1, "c1": "\u009b2J", "bytes": "` + "\x9b2J" + `", "plain": "\"é\" \\"}`))
	})
	good := httptest.NewServer(mux)
	defer good.Close()
	bad, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer bad.Close()
	go func() {
		for {
			c, err := bad.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("HTTP/1.1 500 \x1b]0;owned\x07\r\nContent-Length: 0\r\n\r\n"))
			_ = c.Close()
		}
	}()
	for address, code := range map[string]int{good.Listener.Addr().String(): exitOK, bad.Addr().String(): exitFailure} {
		var out bytes.Buffer
		if got := run(t.Context(), []string{"top", address, "--count", "1", "--every", "1ms"}, &out, &out); got != code {
			t.Errorf("exit %d\n%q", got, &out)
		}
		if strings.ContainsFunc(out.String(), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) || !utf8.Valid(out.Bytes()) {
			t.Errorf("%q", &out)
		}
		if code == exitOK && !strings.Contains(out.String(), "plain: \"é\" \\\n") {
			t.Errorf("%q", &out)
		}
	}
}

func TestTopRefuses(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	for _, tc := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"top"}, exitUsage, "one process ID or address"},
		{[]string{"top", "localhost:1", "--every", "0s"}, exitUsage, "--every"},
		{[]string{"top", s.URL + varsPath}, exitFailure, "has no variables of package expvar"},
		{[]string{"top", "ftp://localhost"}, exitUsage, "must be a process ID, HOST:PORT"},
		{[]string{"top", "/nonexistent"}, exitFailure, "ringside: top /nonexistent: no answer: dial unix /nonexistent: "},
		{[]string{"top", "999999999"}, exitFailure, "there is no process 999999999"},
	} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), tc.args, &out, &errs); code != tc.code || !strings.Contains(errs.String(), tc.says) {
			t.Errorf("%v: exit %d, %q", tc.args, code, &errs)
		}
	}
}

// TestListener reads lines of /proc/PID/net.
func TestListener(t *testing.T) {
	inodes := map[string]bool{"77": true}
	for _, tc := range []struct{ network, line, want string }{
		{"tcp", "0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 77 1", "127.0.0.1:8080"},
		{"tcp", "0: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 77 1", "127.0.0.1:80"},
		{"tcp", "0: 0100007F:1F90 00000000:0000 01 00000000:00000000 00:00000000 00000000 0 0 77 1", ""},
		{"tcp", "0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 78 1", ""},
		{"tcp6", "0: 00000000000000000000000001000000:1F90 0:0 0A 0:0 00:0 0 0 0 77 1", "[::1]:8080"},
		{"unix", "0000000000000000: 00000002 00000000 00010000 0001 01 77 /run/s", "/run/s"},
		{"unix", "0000000000000000: 00000002 00000000 00000000 0001 03 77 /run/s", ""},
		{"tcp", "sl local_address rem_address st", ""},
	} {
		if got := listener(tc.network, strings.Fields(tc.line), inodes); got != tc.want {
			t.Errorf("%s %q: %q, want %q", tc.network, tc.line, got, tc.want)
		}
	}
}

// TestTopFitsTheTerminal checks that a view has no line that is too long, and says what it leaves out.
func TestTopFitsTheTerminal(t *testing.T) {
	view := "http://localhost  12:00:00\n" + strings.Repeat(strings.Repeat("ä", 70)+"\n", 50)
	for _, columns := range []int{60, 80} {
		lines := strings.Split(strings.TrimSuffix(string(fit([]byte(view), columns, 24)), "\n"), "\n")
		if len(lines) != 23 || lines[22] != "29 more lines: --count 1 shows all" {
			t.Errorf("%d columns: %d lines, the last %q", columns, len(lines), lines[len(lines)-1])
		}
		for _, line := range lines {
			if n := utf8.RuneCountInString(line); n > columns {
				t.Errorf("a line has %d of %d columns: %q", n, columns, line)
			}
		}
	}
	if all := fit([]byte(view), 0, 0); string(all) != view {
		t.Error("a view was cut without a terminal")
	}
}
