// SPDX-License-Identifier: MIT

package fileserver

import (
	"bytes"
	"html/template"
	"io"
	"net/http"
	"slices"
	"strings"
)

// listMax bounds how many names of a directory are shown.
const listMax = 10_000

var listPage = template.Must(template.New("list").Parse(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{{.Path}}</title>
<h1>{{.Path}}</h1>
<ul>
{{- if ne .Path "/"}}
<li><a href="../">../</a>{{end}}
{{- range .Names}}
<li><a href="{{.Ref}}">{{.Name}}</a>{{end}}
</ul>
{{- if .More}}
<p>There are more names than are shown.{{end}}
`))

type listed struct{ Name, Ref string }

// list answers with the names in a directory, if the options allow it.
func (h *Handler) list(w *response, r *http.Request, dir *opened) {
	if !h.opts.List {
		fail(w, errHidden)
		return
	}
	entries, err := dir.file.ReadDir(listMax + 1)
	if len(entries) == 0 && err != nil && err != io.EOF {
		fail(w, err)
		return
	}
	page := struct {
		Path  string
		Names []listed
		More  bool
	}{Path: r.URL.Path, More: len(entries) > listMax}
	for _, e := range entries[:min(len(entries), listMax)] {
		name := e.Name()
		if !h.opts.Dotfiles && strings.HasPrefix(name, ".") && name != ".well-known" {
			continue
		}
		if e.IsDir() {
			name += "/"
		}
		page.Names = append(page.Names, listed{name, relative(name)})
	}
	slices.SortFunc(page.Names, func(a, b listed) int { return strings.Compare(a.Name, b.Name) })
	var out bytes.Buffer
	if err := listPage.Execute(&out, page); err != nil {
		http.Error(w, "500 internal server error", http.StatusInternalServerError)
		return
	}
	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Security-Policy", "default-src 'none'")
	header.Set("X-Content-Type-Options", "nosniff")
	http.ServeContent(w, r, "", dir.mtime, bytes.NewReader(out.Bytes()))
}
