// SPDX-License-Identifier: MIT

// Package bucket gives tests a bucket of a real S3 server, versitygw, behind a proxy that makes faults.
//
// The server is built in a temporary directory from the module proxy: no go.mod has it.
package bucket

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
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
)

// server is what is built, at the version of which the faults' answers are known.
const server = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"

// Region, Key and Secret are those of the server.
const (
	Region = "us-east-1"
	Key    = "ringside"
	Secret = "not secret"
)

// Name is the bucket.
const Name = "bucket"

// Fault is what happens to a request. The zero Fault is none.
type Fault struct {
	Delay     time.Duration // before the request is passed on
	Status    int           // answered instead of the server's answer
	Refuse    bool          // the connection ends before the request is passed on
	CutBody   bool          // the server gets half of the request's body, and then the end of its connection
	CutAnswer bool          // the client gets half of the answer's body
	Lose      bool          // the server does what is asked, and the answer is lost
	Shift     time.Duration // the server's times of objects in a list are later
	Clock     time.Duration // the client's clock is ahead of the server's
}

// Bucket is a bucket and its server.
type Bucket struct {
	Endpoint string // host and port of the proxy; http
	t        testing.TB
	exe, dir string
	requests atomic.Int64
	faults   atomic.Pointer[func(n int64, r *http.Request) Fault]
	mu       sync.Mutex
	cmd      *exec.Cmd
	out      *bytes.Buffer // what cmd prints; read after its end
}

// Start builds the server, starts it and makes the bucket. It skips the test unless RINGSIDE_REFEREES=all allows to use the
// module proxy. The end of the test ends the server.
func Start(t testing.TB) *Bucket {
	t.Helper()
	if os.Getenv("RINGSIDE_REFEREES") != "all" {
		t.Skip("builds an S3 server: needs RINGSIDE_REFEREES=all, and the module proxy: make stores sets it")
	}
	// The path of a socket must be short.
	dir, err := os.MkdirTemp("", "s3")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	b := &Bucket{t: t, dir: dir}
	if b.exe, err = build(dir); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{filepath.Join(dir, "store", Name), filepath.Join(dir, "meta")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	b.start()
	proxy := httptest.NewServer(http.HandlerFunc(b.serve))
	b.Endpoint = strings.TrimPrefix(proxy.URL, "http://")
	t.Cleanup(func() {
		proxy.Close()
		b.Kill()
	})
	return b
}

// build returns the server's program.
func build(dir string) (string, error) {
	cmd := exec.Command("go", "install", "-ldflags=-w", server)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "CGO_ENABLED=0", "GOBIN="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%v: %w\n%s", cmd, err, out)
	}
	return filepath.Join(dir, "versitygw"), nil
}

// URL returns the URL of the bucket, as package backup/s3 and the commands take it. The credentials are in the environment.
func (b *Bucket) URL(prefix string) string {
	return "s3://" + Name + "/" + prefix + "?region=" + Region + "&endpoint=http://" + b.Endpoint
}

// Fail lets a function choose what happens to each request, which it must not change; nil ends the faults. The requests are
// numbered from 1 on.
func (b *Bucket) Fail(choose func(n int64, r *http.Request) Fault) {
	if choose == nil {
		b.faults.Store(nil)
		return
	}
	b.faults.Store(&choose)
}

// Requests returns how many requests there were.
func (b *Bucket) Requests() int64 { return b.requests.Load() }

func (b *Bucket) socket() string { return filepath.Join(b.dir, "s") }

// start starts the server, and waits until it listens.
func (b *Bucket) start() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	os.Remove(b.socket())
	b.out = new(bytes.Buffer)
	b.cmd = exec.Command(b.exe, "--port", b.socket(), "--region", Region, "--quiet", "posix",
		"--sidecar", filepath.Join(b.dir, "meta"), filepath.Join(b.dir, "store"))
	b.cmd.Dir = b.dir
	b.cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY_ID="+Key, "ROOT_SECRET_ACCESS_KEY="+Secret)
	b.cmd.Stdout, b.cmd.Stderr = b.out, b.out
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := b.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("unix", b.socket())
		if err == nil {
			c.Close()
			return
		}
		if time.Now().After(end) {
			_ = b.cmd.Process.Kill()
			_ = b.cmd.Wait()
			b.t.Fatalf("versitygw does not listen: %v\n%s", err, b.out)
		}
	}
}

// Kill kills the server.
func (b *Bucket) Kill() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cmd == nil {
		return
	}
	_ = b.cmd.Process.Kill()
	_ = b.cmd.Wait()
	b.cmd = nil
	if b.t.Failed() {
		b.t.Logf("versitygw printed:\n%s", b.out)
	}
}

// Restart starts the server after Kill.
func (b *Bucket) Restart() { b.start() }

// serve passes a request on, with its fault.
func (b *Bucket) serve(w http.ResponseWriter, r *http.Request) {
	n := b.requests.Add(1)
	var f Fault
	if choose := b.faults.Load(); choose != nil {
		f = (*choose)(n, r)
	}
	if f.Delay > 0 {
		time.Sleep(f.Delay)
	}
	switch {
	case f.Refuse:
		panic(http.ErrAbortHandler) // ends the connection
	case f.Status != 0:
		w.WriteHeader(f.Status)
		return
	case f.CutBody && r.ContentLength > 1:
		r.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(io.LimitReader(r.Body, r.ContentLength/2), broken{}), r.Body}
	}
	(&httputil.ReverseProxy{
		Transport: b.transport(),
		ErrorLog:  log.New(io.Discard, "", 0), // cut bodies are no news
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host = "http", "server"
			p.Out.Host = p.In.Host // it is signed
			if f.Clock != 0 {
				p.Out.Header.Set("X-Amz-Date", time.Now().Add(f.Clock).UTC().Format("20060102T150405Z"))
			}
		},
		ModifyResponse: func(a *http.Response) error { return f.answer(a) },
		ErrorHandler:   func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}).ServeHTTP(w, r)
}

// transport returns one that connects to the server anew: a killed server has no old connections.
func (b *Bucket) transport() http.RoundTripper {
	return &http.Transport{
		DisableKeepAlives: true, DisableCompression: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", b.socket())
		},
	}
}

// answer makes the fault of an answer.
func (f *Fault) answer(a *http.Response) error {
	switch {
	case f.Lose:
		a.Body.Close()
		return io.ErrUnexpectedEOF
	case f.CutAnswer && a.ContentLength > 1:
		a.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(io.LimitReader(a.Body, a.ContentLength/2), broken{}), a.Body}
	case f.Shift != 0 && strings.Contains(a.Header.Get("Content-Type"), "xml"):
		p, err := io.ReadAll(a.Body)
		a.Body.Close()
		if err != nil {
			return err
		}
		p = lastModified.ReplaceAllFunc(p, func(m []byte) []byte {
			at, err := time.Parse(time.RFC3339Nano, string(lastModified.FindSubmatch(m)[1]))
			if err != nil {
				return m
			}
			return []byte("<LastModified>" + at.Add(f.Shift).UTC().Format("2006-01-02T15:04:05.000Z") + "</LastModified>")
		})
		a.Body, a.ContentLength = io.NopCloser(bytes.NewReader(p)), int64(len(p))
		a.Header.Set("Content-Length", strconv.Itoa(len(p)))
	}
	return nil
}

var lastModified = regexp.MustCompile(`<LastModified>([^<]*)</LastModified>`)

// broken is where a body ends too early.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
