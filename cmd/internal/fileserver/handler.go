// SPDX-License-Identifier: MIT

package fileserver

import (
	"errors"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/ringside-io/ringside/ufile"
)

// Options are the options of a [Handler]. The zero value is safe.
type Options struct {
	// List answers requests for a directory without index.html with its names.
	List bool
	// Dotfiles serves and lists names that begin with a dot too. Below .well-known they are served
	// in any case.
	Dotfiles bool
	// NoGzip sends all files uncompressed.
	NoGzip bool
}

// Handler answers GET and HEAD with the files below a directory. It may be used concurrently.
//
// A name is resolved below the directory in one step (see ufile.Root), so that neither "..", a symbolic
// link to the outside, nor a race with a process that renames directories leads out of it. An encoded
// slash is a slash. A name that must not be served gets 404, like one that does not exist; a file that
// the system forbids to open gets 403.
type Handler struct {
	root *ufile.Root
	opts Options
	zip  *gzipCache

	files fileCache
}

// Open returns a handler for the files below a directory. The caller must close it.
func Open(dir string, o Options) (*Handler, error) {
	root, err := ufile.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &Handler{root: root, opts: o, zip: newGzipCache()}, nil
}

// Close closes the directory. Requests in progress are still answered.
func (h *Handler) Close() error {
	h.files.close()
	return h.root.Close()
}

const indexPage = "index.html"

// errHidden is the error for a name that is not served.
var errHidden = errors.New("not served")

// ServeHTTP answers a request.
func (h *Handler) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w := &response{rw, connOf(r)}
	if w.conn == nil { // otherwise the connection bounds the time of writes
		w.patience()
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "405 method not allowed", http.StatusMethodNotAllowed)
		return
	}
	name, err := h.name(r.URL.Path)
	if err != nil {
		fail(w, err)
		return
	}
	if strings.HasSuffix(r.URL.Path, "/"+indexPage) {
		redirect(w, r, "./")
		return
	}
	f, err := h.open(name)
	if err != nil {
		fail(w, err)
		return
	}
	slash := strings.HasSuffix(r.URL.Path, "/")
	switch {
	case f.dir && !slash && name != ".":
		redirect(w, r, relative(path.Base(r.URL.Path))+"/") // the base may be a dot
	case f.dir:
		h.directory(w, r, name, f)
	case slash:
		redirect(w, r, "../"+url.PathEscape(path.Base(name)))
	default:
		h.serve(w, r, name, f)
	}
	f.close()
}

// directory answers with index.html, or with a list.
func (h *Handler) directory(w *response, r *http.Request, name string, dir *opened) {
	name = path.Join(name, indexPage)
	index, err := h.open(name)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		fail(w, err)
	case err != nil:
		h.list(w, r, dir)
	case index.dir:
		index.close()
		h.list(w, r, dir)
	default:
		h.serve(w, r, name, index)
		index.close()
	}
}

// name returns the name below the root for the path of a URL.
func (h *Handler) name(urlPath string) (string, error) {
	clean := path.Clean("/" + urlPath)[1:]
	if clean == "" {
		return ".", nil
	}
	if !h.opts.Dotfiles && hidden(clean) {
		return "", errHidden
	}
	// Localize refuses names with another meaning to the system, such as a backslash on Windows.
	return filepath.Localize(clean)
}

// hidden reports whether an element of a clean path begins with a dot, except .well-known (RFC 8615).
func hidden(clean string) bool {
	clean = strings.TrimPrefix(clean, ".well-known/")
	return clean != ".well-known" && (strings.HasPrefix(clean, ".") || strings.Contains(clean, "/."))
}

// fail responds with an error: 403 for forbidden files, 500 or 503 for errors of the server, 404
// for all others.
func fail(w http.ResponseWriter, err error) {
	var errno syscall.Errno
	switch {
	case errors.Is(err, fs.ErrPermission):
		http.Error(w, "403 forbidden", http.StatusForbidden)
	case errors.Is(err, fs.ErrClosed):
		http.Error(w, "503 shutting down", http.StatusServiceUnavailable)
	case errors.As(err, &errno) && (errno == syscall.EMFILE || errno == syscall.ENFILE || errno == syscall.ENOMEM):
		http.Error(w, "503 out of resources, try again later", http.StatusServiceUnavailable)
	case errors.As(err, &errno) && errno == syscall.EIO:
		http.Error(w, "500 internal server error", http.StatusInternalServerError)
	default:
		http.Error(w, "404 page not found", http.StatusNotFound)
	}
}

// redirect redirects to a relative reference, which works behind proxies that remove a prefix.
func redirect(w http.ResponseWriter, r *http.Request, to string) {
	if r.URL.RawQuery != "" {
		to += "?" + r.URL.RawQuery
	}
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusMovedPermanently)
}

// relative returns a name as a relative reference. A colon in it does not begin a scheme.
func relative(name string) string { return (&url.URL{Path: name}).String() }

// Values that all responses share. Nothing changes them.
var varyEncoding = []string{"Accept-Encoding"}

// serve answers with a file, or with its compressed form if there is one.
func (h *Handler) serve(w *response, r *http.Request, name string, f *opened) {
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
	http.ServeContent(w, r, name, f.mtime, &body)
}
