// SPDX-License-Identifier: MIT

package fileserver

import (
	"bytes"
	"compress/gzip"
	"container/list"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ringside-io/ringside/ufile"
)

const (
	// Files between these lengths are compressed: smaller ones fit into a packet, and larger ones
	// take too long to compress. A .gz file beside a file may have any length.
	gzipMin = 1 << 10
	gzipMax = 4 << 20
)

// zipped is the compressed form of a file.
type zipped struct {
	body content
	tag  string
	file *opened // nil if it is in memory
}

// announce sets the header fields of the compressed form. http.ServeContent does not set the length
// of a response with Content-Encoding.
func (z *zipped) announce(header http.Header) {
	header.Set("Content-Encoding", "gzip")
	header.Set("Content-Length", strconv.FormatInt(z.body.size, 10))
	header.Set("Etag", z.tag)
}

func (z *zipped) close() {
	if z.file != nil {
		z.file.close()
	}
}

// compressed returns the compressed form of a file: a file with the same name and .gz that is not
// older, or a compressed copy in memory. It is nil if there is none or it saves too little.
func (h *Handler) compressed(name string, f *opened) *zipped {
	if g, err := h.open(name + ".gz"); err == nil {
		if !g.dir && !g.mtime.Before(f.mtime) && g.size < f.size {
			return &zipped{content{file: g.file, size: g.size}, g.tag("-gz"), g}
		}
		g.close()
	}
	if f.size < gzipMin || f.size > gzipMax {
		return nil
	}
	data := h.zip.get(gzipKey{name, f.state}, func() ([]byte, bool) {
		data, ok := compress(f.file, f.size)
		return data, ok && f.settled()
	})
	if data == nil {
		return nil
	}
	return &zipped{content{data: data, size: int64(len(data))}, f.tag("-gzip"), nil}
}

// settleTime is how long the clock of a file system may show the same time. Tests
// change it.
var settleTime = 2 * time.Second

// settled reports whether a file has not changed since it was opened, and for longer than two
// changes can have the same time.
func (o *opened) settled() bool {
	now, ok := stateOf(o.file)
	return ok && now == o.state && time.Since(time.Unix(0, now.ctime)) > settleTime
}

// compress returns a file's compressed content, nil if that does not save a tenth. It returns false if
// the file could not be read completely.
func compress(f *ufile.File, size int64) ([]byte, bool) {
	plain := make([]byte, size)
	if n, err := f.ReadAt(plain, 0); int64(n) < size || err != nil && err != io.EOF {
		return nil, false
	}
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	// Writing to memory does not fail.
	_, _ = z.Write(plain)
	_ = z.Close()
	if int64(out.Len()) > size*9/10 {
		return nil, true
	}
	return bytes.Clone(out.Bytes()), true
}

// gzipKeep bounds the memory of compressed files; each counts at least gzipLeast.
const (
	gzipKeep  = 64 << 20
	gzipLeast = 512
)

// gzipKey identifies a compressed file and its state.
type gzipKey struct {
	name  string
	state fileState
}

// gzipCache keeps the most recently used compressed files.
type gzipCache struct {
	mu      sync.Mutex
	entries map[gzipKey]*list.Element
	recent  list.List // of *gzipEntry, the last used one first
	bytes   int
	busy    map[gzipKey]bool
}

type gzipEntry struct {
	key  gzipKey
	data []byte // nil if compressing saves too little
}

func newGzipCache() *gzipCache {
	return &gzipCache{entries: map[gzipKey]*list.Element{}, busy: map[gzipKey]bool{}}
}

// get returns the compressed form of a file. It is nil if compressing saves too little, if the form is
// being made, or if as many others are being made as there are processors. The request then gets the
// uncompressed file and does not wait.
func (c *gzipCache) get(key gzipKey, compress func() ([]byte, bool)) []byte {
	c.mu.Lock()
	if e := c.entries[key]; e != nil {
		c.recent.MoveToFront(e)
		c.mu.Unlock()
		return e.Value.(*gzipEntry).data
	}
	if c.busy[key] || len(c.busy) >= runtime.GOMAXPROCS(0) {
		c.mu.Unlock()
		return nil
	}
	c.busy[key] = true
	c.mu.Unlock()
	data, ok := compress()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.busy, key)
	if ok {
		c.keep(&gzipEntry{key, data})
	}
	return data
}

func (c *gzipCache) keep(e *gzipEntry) {
	c.entries[e.key] = c.recent.PushFront(e)
	c.bytes += len(e.data) + gzipLeast
	for c.bytes > gzipKeep {
		last := c.recent.Back()
		old := c.recent.Remove(last).(*gzipEntry)
		delete(c.entries, old.key)
		c.bytes -= len(old.data) + gzipLeast
	}
}

// acceptsGzip reports whether a client wants gzip at least as much as no encoding at all.
func acceptsGzip(fields []string) bool {
	zip, identity, others := -1.0, -1.0, -1.0
	for _, field := range fields {
		for one := range strings.SplitSeq(field, ",") {
			coding, q := quality(one)
			switch coding {
			case "gzip", "x-gzip":
				zip = q
			case "identity":
				identity = q
			case "*":
				others = q
			}
		}
	}
	if zip < 0 {
		zip = others
	}
	return zip > 0 && zip >= identity
}

// quality splits an element of Accept-Encoding. The quality of a malformed one is 0.
func quality(one string) (coding string, q float64) {
	coding, params, found := strings.Cut(one, ";")
	coding = strings.ToLower(strings.TrimSpace(coding))
	if !found {
		return coding, 1
	}
	name, value, _ := strings.Cut(params, "=")
	if !strings.EqualFold(strings.TrimSpace(name), "q") {
		return coding, 1
	}
	q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	if err != nil || !(q >= 0 && q <= 1) {
		return coding, 0
	}
	return coding, q
}

// compressible reports whether content of a type usually shrinks.
func compressible(ctype string) bool {
	ctype, _, _ = strings.Cut(ctype, ";")
	ctype = strings.ToLower(strings.TrimSpace(ctype))
	if strings.HasPrefix(ctype, "text/") || strings.HasSuffix(ctype, "+json") || strings.HasSuffix(ctype, "+xml") {
		return true
	}
	switch ctype {
	case "application/javascript", "application/json", "application/xml", "application/wasm", "application/rtf",
		"application/x-javascript", "application/vnd.ms-fontobject", "font/ttf", "font/otf", "image/bmp", "image/x-icon",
		"image/vnd.microsoft.icon":
		return true
	}
	return false
}
