// SPDX-License-Identifier: MIT

package fileserver

import "net/http"

// Values that all responses share. Nothing changes them.
var varyEncoding = []string{"Accept-Encoding"}

// serve answers with a file, or with its compressed form where that pays.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, name string, f *opened) {
	body := content{file: f.file, size: f.size}
	header := w.Header()
	header["Etag"] = f.etag
	if f.ctype != nil {
		header["Content-Type"] = f.ctype
	}
	if f.zips && !h.opts.NoGzip {
		header["Vary"] = varyEncoding
		if acceptsGzip(r.Header["Accept-Encoding"]) {
			if z := h.compressed(name, f); z != nil {
				defer z.close()
				z.announce(header)
				body = z.body
			}
		}
	}
	out := response{w, connOf(r)}
	http.ServeContent(&out, r, name, f.mtime, &body)
}
