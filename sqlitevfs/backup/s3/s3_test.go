// SPDX-License-Identifier: MIT

package s3

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/minio/minio-go/v7/pkg/credentials"
	_ "github.com/ncruces/go-sqlite3/driver"

	_ "github.com/ringside-io/ringside/sqlitevfs"
	"github.com/ringside-io/ringside/sqlitevfs/backup"
)

// store is a server with a bucket, whose answers to writes fail in turn.
func store(t *testing.T, fault func(n int64, w http.ResponseWriter, r *http.Request) (done bool)) *Target {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket("bucket"); err != nil {
		t.Fatal(err)
	}
	fake := gofakes3.New(backend).Server()
	var puts atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && fault != nil && fault(puts.Add(1), w, r) {
			return
		}
		fake.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	to, err := New(Options{
		Endpoint: strings.TrimPrefix(server.URL, "http://"), Bucket: "bucket", Prefix: "/some/prefix/", Insecure: true, Region: "us-east-1",
		Credentials: credentials.NewStaticV4("id", "secret", ""), Timeout: 3 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// backUp commits while a backup runs, and compares what is restored.
func backUp(t *testing.T, to backup.Target) backup.Stats {
	t.Helper()
	dir := t.TempDir()
	b, err := backup.Start(backup.Options{
		Dir: dir, Target: to, Interval: 5 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	db, err := sql.Open("sqlite3", "file:"+filepath.Join(dir, "tenant.db")+"?vfs=ringside-log&_pragma=journal_mode(wal)&_pragma=synchronous(full)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("CREATE TABLE t(id INTEGER PRIMARY KEY, body)"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const commits = 40
	for i := range commits {
		if _, err := db.Exec("INSERT INTO t(body) VALUES(randomblob(2000))"); err != nil {
			t.Fatal(err)
		}
		if i%5 == 4 {
			if err := b.Sync(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	path := filepath.Join(t.TempDir(), "restored.db")
	if _, err := backup.Restore(ctx, to, "tenant.db", path, backup.RestoreOptions{}); err != nil {
		t.Fatal(err)
	}
	var got int
	restored, err := sql.Open("sqlite3", "file:"+path+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer restored.Close()
	if err := restored.QueryRow("SELECT count(*) FROM t, pragma_integrity_check WHERE integrity_check = 'ok'").Scan(&got); err != nil || got != commits {
		t.Fatalf("restored %d commits of %d: %v", got, commits, err)
	}
	if r, err := backup.Verify(ctx, to, "tenant.db"); err != nil || len(r.Problems) > 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	return b.Stats()
}

// TestFaults backs up to a store that refuses, answers late or 503, breaks off in the middle, or loses the answer after it
// has stored the object.
// Promise: sqlitevfs/backup-store-fails
func TestFaults(t *testing.T) {
	breakOff := func(w http.ResponseWriter) {
		c, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			c.Close()
		}
	}
	for name, fault := range map[string]func(int64, http.ResponseWriter, *http.Request) bool{
		"none": nil,
		"503":  func(_ int64, w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(503); return true },
		"403":  func(_ int64, w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(403); return true },
		"cut": func(_ int64, w http.ResponseWriter, r *http.Request) bool {
			io.CopyN(io.Discard, r.Body, 100)
			breakOff(w)
			return true
		},
		"refused": func(_ int64, w http.ResponseWriter, _ *http.Request) bool { breakOff(w); return true },
		"slow": func(_ int64, _ http.ResponseWriter, _ *http.Request) bool {
			time.Sleep(100 * time.Millisecond)
			return false
		},
	} {
		t.Run(name, func(t *testing.T) {
			to := store(t, func(n int64, w http.ResponseWriter, r *http.Request) bool {
				return fault != nil && n%3 == 1 && fault(n, w, r)
			})
			s := target{to}
			stats := backUp(t, s)
			if failed := name != "none" && name != "slow"; failed != (stats.Failures > 0) {
				t.Errorf("%d failures", stats.Failures)
			}
		})
	}
}

// TestStalledAnswer reads from a store that stops in the middle of an object and of a listing, and removes from one that does not
// answer. All end, with the reason. A reader that pauses for longer loses nothing.
// Promise: sqlitevfs/backup-store-fails
func TestStalledAnswer(t *testing.T) {
	const size = 8 << 20 // more than the sockets take
	stall := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		part := size / 2
		if r.URL.Path == "/bucket/whole" {
			part = size
		}
		if r.Method != http.MethodGet {
			<-stall
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(size))
		w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
		w.Header().Set("ETag", `"x"`)
		w.Write(make([]byte, part))
		w.(http.Flusher).Flush()
		if part < size {
			<-stall
		}
	}))
	defer server.Close()
	defer close(stall)
	to, err := New(Options{
		Endpoint: strings.TrimPrefix(server.URL, "http://"), Bucket: "bucket", Insecure: true, Region: "us-east-1",
		Credentials: credentials.NewStaticV4("id", "secret", ""), Timeout: 300 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err := to.Get(t.Context(), "stalls", 0, -1)
	if err == nil {
		_, err = io.Copy(io.Discard, r)
		r.Close()
	}
	if !errors.Is(err, errStalled) {
		t.Errorf("Get: %v", err)
	}
	if _, err := to.List(t.Context(), "x"); !errors.Is(err, errStalled) {
		t.Errorf("List: %v", err)
	}
	for _, names := range [][]string{{"one"}, {"one", "another"}} {
		if err := to.Delete(t.Context(), names...); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Delete(%q): %v", names, err)
		}
	}
	to.o.Timeout = 2 * time.Second // a busy machine answers in this time
	if r, err = to.Get(t.Context(), "whole", 0, -1); err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	<-time.After(to.o.Timeout + time.Second/2) // the pause
	if n, err := io.Copy(io.Discard, r); n != size || err != nil {
		t.Errorf("read %d bytes after a pause: %v", n, err)
	}
}

// parts is a store of one object, which may come in parts.
type parts struct {
	mu       sync.Mutex
	object   []byte
	parts    map[string][]byte
	requests int
	aborted  int
}

func (p *parts) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests++
	q := r.URL.Query()
	body, _ := io.ReadAll(r.Body)
	switch {
	case r.Method == http.MethodPost && q.Has("uploads"):
		if r.Header.Get("If-None-Match") != "" { // a request that has no such condition
			w.WriteHeader(http.StatusNotImplemented)
			return
		}
		p.parts = make(map[string][]byte)
		io.WriteString(w, "<InitiateMultipartUploadResult><UploadId>id</UploadId></InitiateMultipartUploadResult>")
	case r.Method == http.MethodPut && q.Has("partNumber"):
		p.parts[q.Get("partNumber")] = body
		w.Header().Set("ETag", `"part"`)
	case r.Method == http.MethodDelete && q.Has("uploadId"):
		p.aborted++
		w.WriteHeader(http.StatusNoContent)
	case r.Header.Get("If-None-Match") != "*" || p.object != nil:
		w.WriteHeader(http.StatusPreconditionFailed)
	case r.Method == http.MethodPost:
		for i := range len(p.parts) {
			p.object = append(p.object, p.parts[strconv.Itoa(i+1)]...)
		}
		io.WriteString(w, "<CompleteMultipartUploadResult><Bucket>bucket</Bucket></CompleteMultipartUploadResult>")
	default:
		p.object = body
		w.Header().Set("ETag", `"x"`)
	}
}

// TestLargeObjects stores objects that come in one request or in parts. Neither replaces an object of the name, and no parts are
// left.
// Promise: sqlitevfs/backup-two-writers
func TestLargeObjects(t *testing.T) {
	for _, c := range []struct {
		whole    int64
		requests int
	}{{maxWhole, 1}, {8 << 20, 5}} {
		p := &parts{}
		server := httptest.NewServer(p)
		defer server.Close()
		to, err := New(Options{
			Endpoint: strings.TrimPrefix(server.URL, "http://"), Bucket: "bucket", Insecure: true, Region: "us-east-1",
			Credentials: credentials.NewStaticV4("id", "secret", ""),
		})
		if err != nil {
			t.Fatal(err)
		}
		to.whole = c.whole
		body := make([]byte, 17<<20)
		put := func() error {
			return to.Put(t.Context(), "x", io.NewSectionReader(bytes.NewReader(body), 0, int64(len(body))), time.Now())
		}
		if err := put(); err != nil || p.requests != c.requests || p.aborted > 0 {
			t.Errorf("whole up to %d: %d requests, want %d, %d aborted: %v", c.whole, p.requests, c.requests, p.aborted, err)
		}
		if err := put(); !errors.Is(err, fs.ErrExist) || to.replaces.Load() {
			t.Errorf("whole up to %d: another object of the name: %v", c.whole, err)
		}
		if p.aborted != (c.requests-1)/4 {
			t.Errorf("whole up to %d: %d uploads were aborted", c.whole, p.aborted)
		}
	}
}

// TestRemedies asks stores that refuse. The error names what to do.
func TestRemedies(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	for code, remedy := range remedies {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprintf(w, "<Error><Code>%s</Code><Message>no</Message></Error>", code)
		}))
		to, err := Parse("s3://bucket/x?region=us-east-1&endpoint=" + server.URL)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := to.List(t.Context(), ""); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), remedy) {
			t.Errorf("%s: %v", code, err)
		}
		server.Close()
	}
}

// target hides what else a Target has.
type target struct{ backup.Target }

func TestTarget(t *testing.T) {
	putGetDelete(t, store(t, nil))
	if _, err := Parse("s3://bucket/prefix?endpoint=http://localhost:1&region=here"); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"file:///x", "s3://", "s3://b?endpoint=x"} {
		if _, err := Parse(bad); err == nil {
			t.Errorf("Parse(%q) succeeded", bad)
		}
	}
}

// putGetDelete calls each method of a target.
func putGetDelete(t *testing.T, to *Target) {
	t.Helper()
	ctx := t.Context()
	body := "0123456789"
	if err := to.Put(ctx, "a/b", io.NewSectionReader(strings.NewReader(body), 0, 10), time.Unix(1e9, 0)); err != nil {
		t.Fatal(err)
	}
	all, err := to.List(ctx, "a/")
	if err != nil || len(all) != 1 || all[0].Name != "a/b" || all[0].Size != 10 {
		t.Errorf("List: %v, %v", all, err)
	}
	for _, part := range []struct {
		off, n int64
		want   string
	}{{0, -1, body}, {0, 3, "012"}, {4, 2, "45"}, {7, -1, "789"}} {
		r, err := to.Get(ctx, "a/b", part.off, part.n)
		if err != nil {
			t.Fatal(err)
		}
		if p, err := io.ReadAll(r); string(p) != part.want || err != nil {
			t.Errorf("Get(%d, %d): %q, %v", part.off, part.n, p, err)
		}
		r.Close()
	}
	for _, names := range [][]string{{"a/b", "a/none"}, {"a/none"}, nil} {
		if err := to.Delete(ctx, names...); err != nil {
			t.Errorf("Delete(%q): %v", names, err)
		}
	}
	if _, err := to.Get(ctx, "a/b", 0, -1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Get of a removed object: %v", err)
	}
}
