// SPDX-License-Identifier: MIT

package soak

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/ringside-io/ringside/internal/testing/stress"
	"github.com/ringside-io/ringside/unet"
)

const (
	httpClients = 4
	mostBody    = 64 << 10
	httpFile    = 1 << 20 // length of the served file
)

// http serves net/http on package unet to clients of net/http on package unet.
func (r *round) http() {
	file := r.path("file")
	content := make([]byte, httpFile)
	stress.Bytes(content, 0)
	if err := os.WriteFile(file, content, 0o600); err != nil {
		r.problem(Sockets, "%v", err)
		return
	}
	defer os.Remove(file)
	listener, err := unet.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.problem(Sockets, "%v", err)
		return
	}
	server := &http.Server{Handler: r.httpHandler(file)}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	r.httpClients("http://" + listener.Addr().String())
	ctx, stop := context.WithTimeout(r.cut, patience)
	defer stop()
	err = server.Shutdown(ctx)
	if err != nil {
		_ = server.Close()
	}
	r.judge(Sockets, "shutdown of the HTTP server", err)
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		r.problem(Sockets, "HTTP server: %v", err)
	}
}

// httpHandler sends numbered bytes, a file, or the request's body.
func (r *round) httpHandler(file string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /bytes", func(w http.ResponseWriter, q *http.Request) {
		first, _ := strconv.ParseUint(q.FormValue("first"), 10, 64)
		n, _ := strconv.Atoi(q.FormValue("n"))
		p := make([]byte, 4<<10)
		for rest := min(n, mostBody); rest > 0; {
			p = p[:min(rest, cap(p))]
			stress.Bytes(p, first)
			if _, err := w.Write(p); err != nil {
				r.problem(Sockets, "HTTP response: %v", err)
				return
			}
			rest, first = rest-len(p), first+uint64(len(p))
		}
	})
	mux.HandleFunc("POST /echo", func(w http.ResponseWriter, q *http.Request) {
		p, err := io.ReadAll(http.MaxBytesReader(w, q.Body, mostBody))
		r.judge(Sockets, "HTTP request", err)
		if _, err := w.Write(p); err != nil {
			r.problem(Sockets, "HTTP response: %v", err)
		}
	})
	mux.HandleFunc("GET /file", func(w http.ResponseWriter, q *http.Request) { http.ServeFile(w, q, file) })
	return mux
}

// httpClients makes requests until the round is over.
func (r *round) httpClients(url string) {
	transport := &http.Transport{DialContext: (&unet.Dialer{}).DialContext, MaxIdleConnsPerHost: httpClients, DisableCompression: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: patience}
	var all sync.WaitGroup
	for i := range httpClients {
		all.Go(func() {
			random := r.random(1000 + i)
			for r.more.Err() == nil {
				r.judge(Sockets, "HTTP", r.request(random, client, url))
				if random.IntN(500) == 0 {
					transport.CloseIdleConnections() // so that new connections are opened
				}
			}
		})
	}
	all.Wait()
}

// request makes a request and checks the response.
func (r *round) request(random *rand.Rand, client *http.Client, url string) error {
	r.inFlight.Add(1)
	defer r.inFlight.Add(-1)
	first, n := random.Uint64()>>1, 1+random.IntN(mostBody>>random.IntN(8))
	q, status, err := (*http.Request)(nil), http.StatusOK, error(nil)
	switch random.IntN(8) {
	case 0:
		first = uint64(random.IntN(httpFile - n))
		status = http.StatusPartialContent
		if q, err = http.NewRequest(http.MethodGet, url+"/file", http.NoBody); err == nil {
			q.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", first, first+uint64(n)-1))
		}
	case 1, 2, 3:
		p := make([]byte, n)
		stress.Bytes(p, first)
		q, err = http.NewRequest(http.MethodPost, url+"/echo", bytes.NewReader(p))
	default:
		q, err = http.NewRequest(http.MethodGet, fmt.Sprintf("%s/bytes?first=%d&n=%d", url, first, n), http.NoBody)
	}
	if err != nil {
		return err
	}
	return r.answer(client, q.WithContext(r.cut), status, first, n)
}

// answer sends a request and checks the response.
func (r *round) answer(client *http.Client, q *http.Request, status int, first uint64, n int) (err error) {
	begin := time.Now()
	res, err := client.Do(q)
	if err != nil {
		return fmt.Errorf("after %v: %w", time.Since(begin), err)
	}
	defer func() { err = errors.Join(err, res.Body.Close()) }()
	if res.StatusCode != status {
		return fmt.Errorf("%s %s: %s", q.Method, q.URL, res.Status)
	}
	got, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	want := make([]byte, n)
	stress.Bytes(want, first)
	if err := same(got, want, first); err != nil {
		return fmt.Errorf("%s %s: %w", q.Method, q.URL, err)
	}
	r.done(Sockets, 1)
	return nil
}
