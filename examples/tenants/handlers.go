// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"strconv"

	"github.com/ringside-io/ringside/sqlitevfs"
	"github.com/ringside-io/ringside/sqlitevfs/backup"
	"github.com/ringside-io/ringside/unet"
)

// stats is the answer to GET /stats.
type stats struct {
	VFS     string          `json:"vfs"`
	Backend string          `json:"backend"`
	Reason  string          `json:"reason,omitempty"`
	Open    int             `json:"open"`    // databases
	Threads int             `json:"threads"` // of the operating system
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
	err = s.do(r, true, func(ctx context.Context, d *database) error {
		res, err := d.insert.ExecContext(ctx, body)
		if err == nil {
			id, err = res.LastInsertId()
		}
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
	err = s.do(r, false, func(ctx context.Context, d *database) error {
		return d.get.QueryRowContext(ctx, id).Scan(&body)
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
	err := s.do(r, false, func(ctx context.Context, d *database) error {
		return d.count.QueryRowContext(ctx).Scan(&n)
	})
	if err != nil {
		fail(w, err)
		return
	}
	answer(w, http.StatusOK, map[string]int64{"items": n})
}

func (s *service) stats(w http.ResponseWriter, _ *http.Request) {
	name, reason := unet.Backend()
	all := stats{s.vfs, name, reason, s.store.opened(), threads(), sqlitevfs.Total(), nil}
	if s.saving != nil {
		saved := s.saving.Stats()
		all.Backup = &saved
	}
	answer(w, http.StatusOK, all)
}

// do calls work with the database of the request's tenant.
func (s *service) do(r *http.Request, create bool, work func(context.Context, *database) error) error {
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	return s.store.with(ctx, r.PathValue("tenant"), create, func(d *database) error { return work(ctx, d) })
}

var (
	errNumber = errors.New("an item is named by its number")
	errBody   = errors.New("the item did not arrive whole")
)

// fail answers with an error. Internal errors are logged and not sent to the client.
func fail(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	switch {
	case errors.Is(err, errName), errors.Is(err, errNumber), errors.Is(err, errBody):
		code = http.StatusBadRequest
	case errors.Is(err, errMissing), errors.Is(err, sql.ErrNoRows):
		code = http.StatusNotFound
	case errors.Is(err, errBusy), errors.Is(err, errClosed), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
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
