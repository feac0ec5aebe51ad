// SPDX-License-Identifier: MIT

package framing

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringside-io/ringside/unet/event"
)

// post returns a request with a body of n bytes, and the length of its head.
func post(n int) (p []byte, head int) {
	p = fmt.Appendf(nil, "POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", n)
	return append(p, random(n)...), len(p)
}

// random returns bytes in which a shift is noticed.
func random(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i*7 + i>>8)
	}
	return p
}

// supply feeds p in pieces of up to n bytes, as the loop does: into memory that the
// requests offer if into is set, otherwise in memory that is overwritten afterwards.
func supply(q *requests, p []byte, n int, into bool) error {
	for len(p) > 0 {
		piece := make([]byte, n)
		room := q.receiveInto()
		if into && len(room) > 0 {
			piece = room[:min(n, len(room))]
		}
		k := copy(piece, p)
		if err := q.feed(piece[:k]); err != nil {
			return err
		}
		if p = p[k:]; !into || len(room) == 0 {
			clear(piece)
		}
	}
	return nil
}

func newRequests(o *HTTPOptions, each func(r *Request) error) *requests {
	q := &requests{o: o, each: each}
	q.frames.split = q
	return q
}

// TestMemoryOfBodies feeds bodies in pieces. While a body is incomplete, its memory must be
// at most 18 times as long as what has arrived, and nine fourths as long as the body: eight
// times and once, rounded up to the size of a class.
func TestMemoryOfBodies(t *testing.T) {
	o := &HTTPOptions{MaxHead: 1000, MaxBody: 8 << 20}
	for _, size := range []int{1, 5000, 64 << 10, 1<<20 + 1, 5 << 20} {
		for _, piece := range []int{1000, 4 << 10, 100_000} {
			for _, into := range []bool{false, true} {
				in, head := post(size)
				in = append(in, in...)
				whole, most := 0, 0
				q := newRequests(o, func(r *Request) error {
					if !bytes.Equal(r.Body, in[head:head+size]) || string(r.Method) != "POST" || string(r.Header("host")) != "h" {
						t.Errorf("%d bytes in pieces of %d: the request differs", size, piece)
					}
					whole++
					return nil
				})
				for done := 0; done < len(in); {
					p := in[done:min(done+piece, len(in))]
					if err := supply(q, p, piece, into); err != nil {
						t.Fatal(err)
					}
					done += len(p)
					if q.body.mem == nil {
						continue
					}
					most = max(most, cap(*q.body.mem))
					if n, limit := cap(*q.body.mem), 18*max(len(*q.body.mem), leastRoom); n > limit {
						t.Fatalf("%d bytes of memory when %d have arrived", n, len(*q.body.mem))
					}
				}
				if whole != 2 || most > 9*(size+head)/4+5<<10 {
					t.Errorf("%d bytes in pieces of %d: %d requests, %d bytes of memory", size, piece, whole, most)
				}
			}
		}
	}
}

// TestBodiesReuseMemory checks that bodies neither grow by copying again and again nor
// leave garbage.
func TestBodiesReuseMemory(t *testing.T) {
	in, _ := post(256 << 10)
	q := newRequests(&HTTPOptions{MaxHead: 1000, MaxBody: 1 << 20}, func(*Request) error { return nil })
	var before, after runtime.MemStats
	const rounds = 100
	runtime.ReadMemStats(&before)
	for range rounds {
		for rest := in; len(rest) > 0; {
			n := min(len(rest), 16<<10)
			if err := q.feed(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
	}
	runtime.ReadMemStats(&after)
	if n := (after.TotalAlloc - before.TotalAlloc) / rounds; n > uint64(len(in)) {
		t.Errorf("%d bytes are allocated for a body of %d bytes", n, len(in))
	}
}

// sink is a writer of a streamed body.
type sink struct {
	mu     sync.Mutex // the race detector does not see what a reply orders
	got    bytes.Buffer
	pieces int
	most   int // the longest that is taken
	closed chan struct{}
}

func (w *sink) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pieces++; w.got.Len()+len(p) > w.most {
		return 0, refused(http.StatusInsufficientStorage, "no room")
	}
	return w.got.Write(p)
}

func (w *sink) Close() error { close(w.closed); return nil }

// TestStreamedBodies streams bodies that are longer than MaxBody, refuses some, and
// abandons one.
func TestStreamedBodies(t *testing.T) {
	sinks := make(chan *sink, 100)
	o := HTTPOptions{MaxBody: 1000, Stream: func(r *Request) (io.Writer, error) {
		switch string(r.Target) {
		case "/refused":
			return nil, refused(http.StatusForbidden, "no")
		case "/failed":
			return nil, errors.New("failed")
		case "/collected":
			return nil, nil
		}
		w := &sink{most: 3 << 20, closed: make(chan struct{})}
		sinks <- w
		return w, nil
	}}
	overModes(t, o, func(t *testing.T, s *event.Server) {
		client := &http.Client{Transport: &http.Transport{}, Timeout: testPatience}
		defer client.CloseIdleConnections()
		base := "http://" + s.Addr().String()
		for _, c := range []struct {
			path string
			size int
			code int
		}{
			{"/streamed", 3 << 20, 200}, {"/streamed", 1, 200}, {"/streamed", 70_000, 200}, {"/streamed", 3<<20 + 1, 507},
			{"/collected", 1000, 200}, {"/collected", 1001, 413}, {"/refused", 1, 403}, {"/failed", 1, 500}, {"/streamed", 0, 200},
		} {
			body := random(c.size)
			req, err := http.NewRequest("POST", base+c.path, bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			if c.size > 1<<20 {
				req.Header.Set("Expect", "100-continue")
			}
			res, err := client.Do(req)
			if err != nil {
				t.Fatalf("%s of %d bytes: %v", c.path, c.size, err)
			}
			got, err := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if err != nil || res.StatusCode != c.code {
				t.Errorf("%s of %d bytes: %s, %v; want %d", c.path, c.size, res.Status, err, c.code)
			}
			if c.path == "/collected" && c.code == 200 && !bytes.HasSuffix(got, body) {
				t.Error("the body that is not streamed differs")
			}
			if c.path != "/streamed" || c.size == 0 {
				continue
			}
			w := <-sinks
			w.mu.Lock()
			streamed := bytes.Clone(w.got.Bytes())
			w.mu.Unlock()
			switch {
			case c.code == 200 && !bytes.Equal(streamed, body):
				t.Errorf("%d of %d bytes were streamed", len(streamed), c.size)
			case c.code != 200:
				<-w.closed
			}
		}
		c := dial(t, s)
		if _, err := io.WriteString(c, "POST /streamed HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\nabc"); err != nil {
			t.Fatal(err)
		}
		w := <-sinks
		_ = c.Close()
		select {
		case <-w.closed:
		case <-time.After(testPatience):
			t.Error("the writer of a body that ended early was not closed")
		}
	})
}

// TestSlowStream checks that a streamed body may take longer than Idle while bytes arrive,
// and no longer than Idle without one.
func TestSlowStream(t *testing.T) {
	sinks := make(chan *sink, 1)
	o := HTTPOptions{Idle: 200 * time.Millisecond, Stream: func(*Request) (io.Writer, error) {
		w := &sink{most: 1000, closed: make(chan struct{})}
		sinks <- w
		return w, nil
	}}
	s, err := event.Listen("tcp", "127.0.0.1:0", HTTP(report, o), event.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	c := dial(t, s)
	const size = 30
	if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 31\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	w, begin := <-sinks, time.Now()
	for range size {
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond) // the pace of the peer
	}
	took := time.Since(begin)
	select {
	case <-w.closed:
		if took < 5*time.Second { // otherwise this machine made the peer stop
			t.Errorf("the connection ended although bytes arrived")
		}
	default:
	}
	if n, err := c.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("a body that does not go on: %d, %v", n, err)
	}
	<-w.closed
	w.mu.Lock()
	defer w.mu.Unlock()
	if got := w.got.String(); !strings.HasPrefix(strings.Repeat("x", size), got) {
		t.Errorf("%q was streamed", got)
	}
}
