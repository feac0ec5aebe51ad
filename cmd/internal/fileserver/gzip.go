// SPDX-License-Identifier: MIT

package fileserver

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/ringside-io/ringside/ufile"
)

const (
	// Files between these lengths are compressed: smaller ones fit into a packet anyway, larger ones
	// would take longer than a client likes to wait. A .gz beside a file may have any length.
	gzipMin = 1 << 10
	gzipMax = 4 << 20
)

// zipped is the compressed form of a file.
type zipped struct {
	body content
	tag  string
	file *opened // nil if it is in memory
}

// announce sets the header fields that the compressed form has for itself. http.ServeContent sets the
// length only where it is sure that no other handler compresses.
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

// compressed returns the compressed form of a file, nil if there is none that pays: a file with the
// same name and .gz that is not older, or what we make of it and keep in memory.
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

// settled reports whether a file is as it was when it was opened, and has been so
// for longer than two changes can have the same time.
func (o *opened) settled() bool {
	now, ok := stateOf(o.file)
	return ok && now == o.state && time.Since(time.Unix(0, now.ctime)) > settleTime
}

// compress returns a file's content compressed, nil if that does not save a tenth; false if the file
// could not be read as it was.
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
