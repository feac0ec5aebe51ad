// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log"
	"net/http"
	"strconv"

	"github.com/ringside-io/ringside/sqlitevfs"
	"github.com/ringside-io/ringside/sqlitevfs/backup"
	"github.com/ringside-io/ringside/sqlitevfs/tenants"
	"github.com/ringside-io/ringside/unet"
)

// stats is the answer to GET /stats.
type stats struct {
	VFS     string          `json:"vfs"`
	Backend string          `json:"backend"`
	Reason  string          `json:"reason,omitempty"`
	Threads int             `json:"threads"` // of the operating system
	Tenants tenants.Stats   `json:"tenants"`
	SQLite  sqlitevfs.Stats `json:"sqlite"`
	Backup  *backup.Stats   `json:"backup,omitempty"`
}

func (s *service) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /tenants/{tenant}/items", s.put)
	mux.HandleFunc("GET /tenants/{tenant}/items/{id}", s.get)
	mux.HandleFunc("GET /tenants/{tenant}", s.count)
	mux.HandleFunc("GET /stats", s.stats)
	return mux
}

// put stores the request's body, which is durable before the answer is sent.
func (s *service) put(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if err != nil && !isTooLarge(err) {
		err = errBody
	}
	if err != nil {
		fail(w, err)
		return
	}
	var id int64
	err = s.do(r, s.pool.Create, func(c *tenants.Conn) (err error) {
		id, err = insert(c, body)
		return err
	})
	if err != nil {
		fail(w, err)
		return
	}
	answer(w, http.StatusCreated, map[string]int64{"id": id})
}

func (s *service) get(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		fail(w, errNumber)
		return
	}
	var body []byte
	err = s.do(r, s.pool.Use, func(c *tenants.Conn) (err error) {
		body, err = fetch(c, id)
		return err
	})
	if err != nil {
		fail(w, err)
		return
	}
	// An item of one user must not be shown as a page of this site to another.
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(body)
}

func (s *service) count(w http.ResponseWriter, r *http.Request) {
	var n int64
	err := s.do(r, s.pool.Use, func(c *tenants.Conn) (err error) {
		n, err = count(c)
		return err
	})
	if err != nil {
		fail(w, err)
		return
	}
	answer(w, http.StatusOK, map[string]int64{"items": n})
}

func (s *service) stats(w http.ResponseWriter, _ *http.Request) {
	name, reason := unet.Backend()
	all := stats{s.vfs, name, reason, threads(), s.pool.Stats(), sqlitevfs.Total(), nil}
	if s.saving != nil {
		saved := s.saving.Stats()
		all.Backup = &saved
	}
	answer(w, http.StatusOK, all)
}

// use is Pool.Use or Pool.Create.
type use func(context.Context, string, func(*tenants.Conn) error) error

// do calls work with the database of the request's tenant.
func (s *service) do(r *http.Request, use use, work func(*tenants.Conn) error) error {
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	return use(ctx, r.PathValue("tenant"), work)
}

var (
	errNumber = errors.New("an item is named by its number")
	errBody   = errors.New("the item did not arrive whole")
)

// fail answers with an error. Internal errors are logged and not sent to the client.
func fail(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	switch {
	case errors.Is(err, tenants.ErrName), errors.Is(err, errNumber), errors.Is(err, errBody):
		code = http.StatusBadRequest
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, errNoItem):
		code = http.StatusNotFound
	case errors.Is(err, tenants.ErrClosed), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		code = http.StatusServiceUnavailable
	case isTooLarge(err):
		code = http.StatusRequestEntityTooLarge
	}
	text := err.Error()
	if code == http.StatusInternalServerError {
		log.Print(err)
		text = http.StatusText(code)
	}
	answer(w, code, map[string]string{"error": text})
}

func isTooLarge(err error) bool {
	_, ok := errors.AsType[*http.MaxBytesError](err)
	return ok
}

func answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // the client may have gone
}
