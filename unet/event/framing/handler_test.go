// SPDX-License-Identifier: MIT

package framing

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/unet/event"
)

// testPatience is how long a test waits for an event that must happen.
const testPatience = time.Minute

// overModes runs test with a server on each backend. The server replies with the method,
// the target, the fields whose names begin with X-, and the body; /large has 256 KiB.
func overModes(t *testing.T, o HTTPOptions, test func(t *testing.T, s *event.Server)) {
	t.Helper()
	overModesOf(t, HTTP(report, o), test)
}

func overModesOf(t *testing.T, h event.Handler, test func(t *testing.T, s *event.Server)) {
	t.Helper()
	for _, mode := range []event.Mode{event.ModeRing, event.ModeEpoll, event.ModeNet} {
		t.Run(mode.String(), func(t *testing.T) {
			switch {
			case mode == event.ModeRing:
				ringtest.NeedKernel(t, "multishot receive", "6.0")
			case mode == event.ModeEpoll && runtime.GOOS != "linux":
				t.Skip("needs epoll")
			}
			s, err := event.Listen("tcp", "127.0.0.1:0", h, event.Options{Mode: mode})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}()
			test(t, s)
		})
	}
}

var large = bytes.Repeat([]byte("0123456789abcde\n"), 16<<10)

func report(dst []byte, r *Request) []byte {
	if string(r.Target) == "/large" {
		return r.AppendResponse(dst, 200, large)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s %s\n", r.Method, r.Target, r.Host)
	for k, v := range r.Headers() {
		if strings.HasPrefix(http.CanonicalHeaderKey(string(k)), "X-") {
			fmt.Fprintf(&b, "%s=%s\n", http.CanonicalHeaderKey(string(k)), v)
		}
	}
	b.Write(r.Body)
	code := 200
	if v := r.Header("x-code"); v != nil {
		code, _ = strconv.Atoi(string(v))
	}
	return r.AppendResponse(dst, code, b.Bytes(), "Content-Type", "text/plain", "X-Echo", string(r.Header("x-test")))
}

// dial connects; the end of the test closes the connection.
func dial(t testing.TB, s *event.Server) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(testPatience))
	return c.(*net.TCPConn)
}

// endedConn counts in ended the connections that the peer ended.
type endedConn struct {
	net.Conn
	ended *atomic.Int64
}

func (c endedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil && !errors.Is(err, net.ErrClosed) {
		c.ended.Add(1)
	}
	return n, err
}

// TestClientOfNetHTTP checks the replies with the client of package net/http.
// Promise: unet/event/framing-http-net
func TestClientOfNetHTTP(t *testing.T) {
	overModes(t, HTTPOptions{}, func(t *testing.T, s *event.Server) {
		var ended atomic.Int64
		tr := &http.Transport{MaxIdleConnsPerHost: 4, DisableCompression: true,
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, address)
				return endedConn{conn, &ended}, err
			}}
		defer tr.CloseIdleConnections()
		client := &http.Client{Transport: tr, Timeout: testPatience}
		base := "http://" + s.Addr().String()
		do := func(method, path string, body []byte, field ...string) (*http.Response, string) {
			req, err := http.NewRequest(method, base+path, bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			for i := 0; i < len(field); i += 2 {
				req.Header.Set(field[i], field[i+1])
			}
			res, err := client.Do(req)
			if err != nil {
				t.Fatalf("%s %s: %v", method, path, err)
			}
			got, err := io.ReadAll(res.Body)
			if err != nil {
				t.Fatalf("%s %s: %v", method, path, err)
			}
			_ = res.Body.Close()
			return res, string(got)
		}
		for range 3 {
			res, got := do("GET", "/a?b=c", nil, "X-Test", "1")
			if want := "GET /a?b=c " + s.Addr().String() + "\nX-Test=1\n"; got != want || res.Header.Get("X-Echo") != "1" || res.Header.Get("Content-Type") != "text/plain" {
				t.Errorf("got %q and %v", got, res.Header)
			}
			if d, err := http.ParseTime(res.Header.Get("Date")); err != nil || time.Since(d).Abs() > testPatience {
				t.Errorf("Date: %v, %v", d, err)
			}
			body := bytes.Repeat([]byte("y"), 100_000)
			if _, got = do("POST", "/p", body); !strings.HasSuffix(got, string(body)) {
				t.Errorf("a body of %d bytes came back as %d", len(body), len(got))
			}
			if _, got = do("PUT", "/p", body, "Expect", "100-continue"); !strings.HasSuffix(got, string(body)) {
				t.Errorf("a body sent with Expect: 100-continue came back as %d bytes", len(got))
			}
			if res, got = do("HEAD", "/large", nil); got != "" || res.ContentLength != int64(len(large)) {
				t.Errorf("HEAD: %d bytes, length %d", len(got), res.ContentLength)
			}
			if _, got = do("GET", "/large", nil); got != string(large) {
				t.Errorf("the large reply has %d bytes", len(got))
			}
			if res, got = do("GET", "/", nil, "X-Code", "204"); res.StatusCode != 204 || got != "" {
				t.Errorf("%v with %q", res.Status, got)
			}
		}
		// On a busy machine net/http gives a connection up whose request it has not written for
		// 50 ms when the reply has come. Then its own Close ends the connection.
		if n := ended.Load(); n != 0 {
			t.Errorf("the server ended %d of %d connections", n, s.Stats().Accepted)
		}
		if res, _ := do("GET", "/", nil, "Connection", "close"); !res.Close {
			t.Error("the reply lacks Connection: close")
		}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for i := range 30 {
					res, err := client.Get(base + "/" + strconv.Itoa(i))
					if err != nil {
						t.Error(err)
						return
					}
					got, err := io.ReadAll(res.Body)
					_ = res.Body.Close()
					if want := fmt.Sprintf("GET /%d %s\n", i, s.Addr()); err != nil || string(got) != want {
						t.Errorf("%q, %v; want %q", got, err, want)
					}
				}
			})
		}
		wg.Wait()
	})
}

// TestPipelining sends many requests before it reads the first reply, more replies than may
// be pending, in pieces of several lengths; the last request ends the connection.
// Promise: unet/event/framing-http-net
func TestPipelining(t *testing.T) {
	overModes(t, HTTPOptions{}, func(t *testing.T, s *event.Server) {
		for _, piece := range []int{7, 1000, 1 << 20} {
			var in []byte
			n := ringtest.Rounds(60, 8)
			for i := range n {
				in = fmt.Appendf(in, "POST /%d HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc", i)
				in = append(in, "GET /large HTTP/1.1\r\nHost: h\r\n\r\n"...)
			}
			in = append(in, "GET /last HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"...)
			c := dial(t, s)
			var wg sync.WaitGroup
			wg.Go(func() {
				for p := range slices.Chunk(in, piece) {
					if _, err := c.Write(p); err != nil {
						t.Errorf("write: %v", err)
						return
					}
				}
			})
			r := bufio.NewReader(c)
			next := func(want string) {
				res, err := http.ReadResponse(r, nil)
				if err != nil {
					t.Fatalf("pieces of %d: %v", piece, err)
				}
				got, err := io.ReadAll(res.Body)
				if err != nil || string(got) != want {
					t.Fatalf("pieces of %d: %d bytes, %v; want %d", piece, len(got), err, len(want))
				}
			}
			for i := range n {
				next(fmt.Sprintf("POST /%d h\nabc", i))
				next(string(large))
			}
			next("GET /last h\n")
			if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 {
				t.Errorf("after the last reply: %q, %v", rest, err)
			}
			wg.Wait()
		}
	})
}

// TestMemoryIsBounded checks that the server stops computing replies while the peer does
// not read.
// Promise: unet/event/framing-http-net
func TestMemoryIsBounded(t *testing.T) {
	overModes(t, HTTPOptions{}, func(t *testing.T, s *event.Server) {
		c := dial(t, s)
		one := []byte("GET /large HTTP/1.1\r\nHost: h\r\n\r\n")
		in := bytes.Repeat(one, 1000) // replies of 256 MB
		go func() { _, _ = c.Write(in) }()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r := bufio.NewReader(c)
		for i := range 20 {
			res, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			if n, err := io.Copy(io.Discard, res.Body); err != nil || n != int64(len(large)) {
				t.Fatalf("reply %d: %d bytes, %v", i, n, err)
			}
		}
		runtime.ReadMemStats(&after)
		if grown := int64(after.TotalAlloc - before.TotalAlloc); grown > 64<<20 {
			t.Errorf("%d MiB were allocated although only 20 replies were read", grown>>20)
		}
	})
}

// TestRefusals checks that the reply to a refused request arrives although more input
// follows.
// Promise: unet/event/framing-http-net
func TestRefusals(t *testing.T) {
	more := strings.Repeat("more input ", 10_000)
	overModes(t, HTTPOptions{MaxHead: 1000, MaxBody: 1000}, func(t *testing.T, s *event.Server) {
		for in, want := range map[string]int{
			"nonsense\r\n\r\n": 400,
			"\x16\x03\x01":     400,
			"GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n":  411,
			"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n":                413,
			"GET / HTTP/1.1\r\nHost: h\r\nA: " + strings.Repeat("x", 1000) + "\r\n\r\n": 431,
			"GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n":              501,
			"GET / HTTP/2.0\r\nHost: h\r\n\r\n":                                         505,
		} {
			c := dial(t, s)
			if _, err := io.WriteString(c, in); err != nil {
				t.Fatal(err)
			}
			r := bufio.NewReader(c)
			res, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Errorf("%.40q: %v", in, err)
				continue
			}
			if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != want || !res.Close {
				t.Errorf("%.40q: %s, close %v, %v; want %d", in, res.Status, res.Close, err, want)
			}
			for range 3 { // a reset would end the connection, and could have overtaken the reply
				if _, err := io.WriteString(c, more); err != nil {
					t.Fatalf("%.40q: writing after the refusal: %v", in, err)
				}
			}
			_ = c.CloseWrite()
			if _, err := r.ReadByte(); err != io.EOF {
				t.Errorf("%.40q: after the reply: %v", in, err)
			}
		}
	})
}

// TestIdle checks that a connection without a whole request ends, and one whose peer does
// not read.
func TestIdle(t *testing.T) {
	overModes(t, HTTPOptions{Idle: 50 * time.Millisecond}, func(t *testing.T, s *event.Server) {
		slow, deaf := dial(t, s), dial(t, s)
		if _, err := io.WriteString(slow, "GET / HTTP/1.1\r\n"); err != nil {
			t.Fatal(err)
		}
		_, _ = deaf.Write(bytes.Repeat([]byte("GET /large HTTP/1.1\r\nHost: h\r\n\r\n"), 200))
		if n, err := slow.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the connection without a request: %d, %v", n, err)
		}
		for end := time.Now().Add(testPatience); s.Stats().Open > 0; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the connection whose peer does not read is still open")
			}
		}
	})
}

// TestStreamedBodyArrives checks what the timer sees of bodies that arrive as the one before did: each has bytes of its
// own, and none without them.
// Promise: unet/event/framing-http-net
func TestStreamedBodyArrives(t *testing.T) {
	o := &HTTPOptions{MaxHead: 200, Stream: func(*Request) (io.Writer, error) { return io.Discard, nil }}
	e := &exchange{o: o, answer: func(dst []byte, r *Request) []byte { return dst }}
	e.in.o, e.in.each, e.in.frames.split = o, e.request, &e.in
	feed := func(text string) {
		t.Helper()
		if err := e.in.feed([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	const head = "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n"
	for i := range 2 {
		if e.arrived() {
			t.Errorf("request %d: a byte has arrived before it begins", i)
		}
		feed(head + "01234")
		if !e.arrived() || e.arrived() {
			t.Errorf("request %d: want true once", i)
		}
		feed("56789")
	}
	feed(head + "01234" + "56789" + head + "01234")
	if !e.arrived() {
		t.Error("the begin of a request behind another one did not arrive")
	}
}

// TestShutdown checks that requests that have arrived get replies.
func TestShutdown(t *testing.T) {
	overModes(t, HTTPOptions{}, func(t *testing.T, s *event.Server) {
		idle, busy := dial(t, s), dial(t, s)
		if _, err := io.WriteString(idle, "GET /a HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(idle)
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		const n = 20
		if _, err := io.WriteString(busy, strings.Repeat("GET /large HTTP/1.1\r\nHost: h\r\n\r\n", n)); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(testPatience); s.Stats().Accepted < 2; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the connections are not accepted")
			}
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), testPatience)
			defer cancel()
			if err := s.Shutdown(ctx); err != nil {
				t.Error(err)
			}
		})
		rb := bufio.NewReader(busy)
		for range n {
			res, err := http.ReadResponse(rb, nil)
			if err != nil {
				t.Fatal(err)
			}
			if k, err := io.Copy(io.Discard, res.Body); err != nil || k != int64(len(large)) {
				t.Fatal(k, err)
			}
		}
		if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 {
			t.Errorf("the idle connection: %q, %v", rest, err)
		}
		wg.Wait()
	})
}

// fedRequests feeds requests like a Frames, whose frames are the first line, the fields and the body.
type fedRequests struct{ requests }

func (q *fedRequests) Feed(data []byte, each func([]byte) error) error {
	q.each = func(r *Request) error {
		if w, ok := r.Stream.(*bytes.Buffer); ok {
			r.Body = w.Bytes()
		}
		return each(fmt.Appendf(nil, "%s %s %s %d %v %q %q", r.Method, r.Target, r.Host, r.Length, r.Close, r.fields, r.Body))
	}
	return q.feed(data)
}

func (q *fedRequests) End(each func([]byte) error) error {
	if err := q.Feed(nil, each); err != nil {
		return err
	}
	if q.body.open {
		return io.ErrUnexpectedEOF
	}
	return q.frames.End(nil)
}

// FuzzRequests checks that the requests of a stream do not depend on how it is cut into
// pieces, nor on whether their bodies are streamed.
// Promise: unet/event/framing-http-net
func FuzzRequests(f *testing.F) {
	for _, raw := range slices.Sorted(maps.Keys(corpus(f))) {
		f.Add([]byte(raw+raw), []byte{0}, true)
	}
	f.Add([]byte("PUT / HTTP/1.0\r\nContent-Length: 9223372036854775807\r\n\r\nabc"), []byte{0}, false)
	f.Add([]byte("PUT / HTTP/1.0\r\nContent-Length: 3\r\nConnection: keep-alive\r\n\r\nabcPUT / HTTP/1.0\r\nContent-Length: 9\r\n\r\n012345678"), []byte{70, 1}, true)
	f.Fuzz(func(t *testing.T, p, cuts []byte, pauses bool) {
		for _, most := range []int{100, math.MaxInt} {
			requests := func(cuts []byte, pauses, streams bool) ([][]byte, error) {
				q := &fedRequests{requests{o: &HTTPOptions{MaxHead: 200, MaxBody: most}}}
				q.frames.split = q
				if streams {
					q.o.Stream = func(r *Request) (io.Writer, error) {
						if r.Length > int64(most) {
							return nil, nil
						}
						return new(bytes.Buffer), nil
					}
				}
				return pieces(q, p, cuts, pauses)
			}
			want, wantErr := requests(nil, false, false)
			got, err := requests(cuts, pauses, false)
			compare(t, got, want, err, wantErr)
			got, err = requests(cuts, pauses, true)
			compare(t, got, want, err, wantErr)
		}
	})
}

// TestLengthOfMaxInt checks that a body of any length is refused or awaited if MaxBody is the
// largest int.
// Promise: unet/event/framing-http-net
func TestLengthOfMaxInt(t *testing.T) {
	overModes(t, HTTPOptions{MaxBody: math.MaxInt}, func(t *testing.T, s *event.Server) {
		for _, length := range []string{"9223372036854775807", "9223372036854775700", "99999999999999999999999"} {
			c := dial(t, s)
			if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: "+length+"\r\n\r\nabc"); err != nil {
				t.Fatal(err)
			}
			_ = c.CloseWrite()
			answer, err := io.ReadAll(c)
			if err != nil || len(answer) > 0 && !strings.HasPrefix(string(answer), "HTTP/1.1 413 ") {
				t.Errorf("%s bytes: %q, %v", length, answer, err)
			}
		}
	})
}

// corpus returns the requests in the tests of package net/http of this toolchain, with
// their positions.
func corpus(t testing.TB) map[string]string {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Skip("needs the go command, for the tests of net/http")
	}
	texts := make(map[string]string)
	for _, name := range []string{"readrequest_test.go", "request_test.go", "serve_test.go", "requestwrite_test.go"} {
		path := filepath.Join(strings.TrimSpace(string(out)), "src/net/http", name)
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Skipf("needs the tests of net/http in the toolchain: %v", err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if e, ok := n.(ast.Expr); ok {
				if s, ok := constant(e); ok {
					if strings.Contains(s, "HTTP/1.") && strings.Contains(s, "\n") {
						texts[s] = fset.Position(e.Pos()).String()
					}
					return false
				}
			}
			return true
		})
	}
	if len(texts) < 50 {
		t.Fatalf("the tests of net/http have %d requests", len(texts))
	}
	return texts
}

// constant returns the value of a string, or of a sum of strings.
func constant(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		return s, e.Kind == token.STRING && err == nil
	case *ast.BinaryExpr:
		x, ok1 := constant(e.X)
		y, ok2 := constant(e.Y)
		return x + y, ok1 && ok2 && e.Op == token.ADD
	}
	return "", false
}

// TestCorpusOfNetHTTP parses the requests of net/http's tests. net/http parses each request
// that ParseHead accepts in the same way. A request that ParseHead refuses and net/http
// accepts is of one of a few kinds.
// Promise: unet/event/framing-http-net
func TestCorpusOfNetHTTP(t *testing.T) {
	taken, stricter := 0, map[string]int{}
	for raw, at := range corpus(t) {
		r, n, err := ParseHead([]byte(raw), 1<<20)
		theirs, theirErr := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
		var bad *StatusError
		switch {
		case errors.As(err, &bad) && theirErr == nil:
			if stricter[bad.Reason]++; stricter[bad.Reason] == 1 {
				t.Logf("%s: ParseHead refuses it, net/http does not: %v", at, err)
			}
			switch bad.Reason {
			case "chunked bodies are not taken", "the length of the body is given more than once", "a line ends without a carriage return",
				"there must be one field Host", "Host is not a host", "this is not HTTP", "the target has characters that it must not have":
			default:
				t.Errorf("%s: ParseHead refuses it with %v; net/http accepts it", at, err)
			}
		case n > 0 && theirErr != nil:
			t.Errorf("%s: ParseHead accepts it; net/http returns %v", at, theirErr)
		case n > 0:
			taken++
			if string(r.Method) != theirs.Method || string(r.Target) != theirs.RequestURI || string(r.Host) != theirs.Host || r.Length != theirs.ContentLength || r.Close != theirs.Close {
				t.Errorf("%s: %s %s, host %s, length %d, close %v; net/http: %s %s, %s, %d, %v", at, r.Method, r.Target, r.Host, r.Length, r.Close,
					theirs.Method, theirs.RequestURI, theirs.Host, theirs.ContentLength, theirs.Close)
			}
			for k, v := range theirs.Header {
				if got := r.Header(k); string(got) != v[0] {
					t.Errorf("%s: field %s is %q; net/http: %q", at, k, got, v[0])
				}
			}
		}
	}
	t.Logf("%d requests are accepted; refused, but not by net/http: %v", taken, stricter)
	if taken < 30 {
		t.Errorf("only %d requests are accepted", taken)
	}
}

func BenchmarkParse(b *testing.B) {
	in := []byte("GET /plaintext HTTP/1.1\r\nHost: localhost\r\nUser-Agent: bench\r\nAccept: text/plain\r\nConnection: keep-alive\r\n\r\n")
	body, out := []byte("Hello, World!"), []byte(nil)
	b.ReportAllocs()
	for b.Loop() {
		r, n, err := ParseHead(in, 8<<10)
		if n != len(in) || err != nil {
			b.Fatal(n, err)
		}
		out = r.AppendResponse(out[:0], 200, body, "Content-Type", "text/plain")
	}
}
