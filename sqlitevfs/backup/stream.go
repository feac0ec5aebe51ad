// SPDX-License-Identifier: MIT

package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/superfly/ltx"
)

// File is an object of the stream of a database. Its name is NAME/ltx/LEVEL/MIN-MAX.ltx, as Litestream writes it.
type File struct {
	Level    int
	Min, Max ltx.TXID // the transactions in it; a file from 1 on has all pages
	Size     int64    // bytes
	Time     time.Time
	exact    bool // see Object.Exact
}

// Levels of a stream. Level 0 has the files as they were written, and each next one up to levelMax the
// files of the one before in larger pieces.
const (
	levelMax      = 3
	levelSnapshot = 9
)

// Object returns the name of the file's object.
func (f File) Object(database string) string {
	return prefixOf(database) + strconv.Itoa(f.Level) + "/" + ltx.FormatFilename(f.Min, f.Max)
}

// prefixOf returns how the names of the objects of a database begin.
func prefixOf(database string) string { return database + "/ltx/" }

// parseObject returns the database and the file of an object, or ok=false for an object that is no part of a stream.
func parseObject(o Object) (database string, f File, ok bool) {
	database, rest, found := cutLast(o.Name, "/ltx/")
	level, name, slash := strings.Cut(rest, "/")
	if !found || !slash {
		return "", f, false
	}
	n, err := strconv.Atoi(level)
	lo, hi, err2 := ltx.ParseFilename(name)
	if err != nil || err2 != nil || lo == 0 || lo > hi {
		return "", f, false
	}
	return database, File{Level: n, Min: lo, Max: hi, Size: o.Size, Time: o.Time, exact: o.Exact}, true
}

// deletedLevel takes the place of the level in the name of an empty object, which notes that there was no such
// database when a transaction was the newest of all. One with a later transaction was created since.
const deletedLevel = "deleted"

// parseDeleted returns the database and the transaction of such an object.
func parseDeleted(o Object) (database string, at ltx.TXID, ok bool) {
	database, rest, found := cutLast(o.Name, "/ltx/")
	number, found2 := strings.CutPrefix(rest, deletedLevel+"/")
	at, err := ltx.ParseTXID(number)
	return database, at, found && found2 && err == nil
}

func cutLast(s, sep string) (before, after string, ok bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// Files returns the files of the stream of a database, by level and transaction.
func Files(ctx context.Context, t Target, database string) ([]File, error) {
	objects, err := t.List(ctx, prefixOf(database))
	if err != nil {
		return nil, err
	}
	var files []File
	for _, o := range objects {
		if name, f, ok := parseObject(o); ok && name == database {
			files = append(files, f)
		}
	}
	return sorted(files), nil
}

// sorted returns the files in their order. One that the target has listed twice is there once.
func sorted(files []File) []File {
	order := func(a, b File) int {
		return cmp.Or(cmp.Compare(a.Level, b.Level), cmp.Compare(a.Min, b.Min), cmp.Compare(a.Max, b.Max))
	}
	slices.SortFunc(files, order)
	return slices.CompactFunc(files, func(a, b File) bool { return order(a, b) == 0 })
}

// newest returns the newest transaction of files, which may be out of reach.
func newest(files []File) (n ltx.TXID) {
	for _, f := range files {
		n = max(n, f.Max)
	}
	return n
}

var (
	// ErrNone is the error for a database without a file in the target, or without one that is old enough.
	ErrNone = errors.New("backup: the target has no such state of the database")
	// ErrGap is the error for a stream that lacks a file.
	ErrGap = errors.New("backup: the target lacks a file of the stream")
)

// plan returns the files that make up the newest state: the last snapshot, and files each of which continues the one
// before. The error is ErrGap, beside the files before the gap, if the newest transaction cannot be reached.
func plan(files []File) ([]File, error) {
	var all []File
	var at ltx.TXID
	for _, f := range files {
		if f.Min == 1 && f.Max > at {
			all, at = []File{f}, f.Max
		}
	}
	for {
		best := File{}
		for _, f := range files {
			if f.Min <= at+1 && f.Max > max(at, best.Max) && f.Min > 1 {
				best = f
			}
		}
		if best.Max == 0 || at == 0 {
			break
		}
		all, at = append(all, best), best.Max
	}
	switch end := newest(files); {
	case end == 0:
		return nil, ErrNone
	case end > at:
		return all, fmt.Errorf("%w: transaction %d; the newest one is %d", ErrGap, at+1, end)
	}
	return all, nil
}

// header reads the header of a file.
func header(ctx context.Context, t Target, database string, f File) (ltx.Header, error) {
	r, err := get(ctx, t, f.Object(database), 0, ltx.HeaderSize)
	if err != nil {
		return ltx.Header{}, err
	}
	defer r.Close()
	h, _, err := ltx.PeekHeader(r)
	return h, r.because(tooShort(err))
}

// tail returns the checksum of the database after a file.
func tail(ctx context.Context, t Target, database string, f File) (ltx.Checksum, error) {
	if f.Size < ltx.HeaderSize+ltx.TrailerSize {
		return 0, ltx.ErrInvalidFile
	}
	r, err := get(ctx, t, f.Object(database), f.Size-ltx.TrailerSize, ltx.TrailerSize)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	p := make([]byte, ltx.TrailerSize)
	if _, err := io.ReadFull(r, p); err != nil {
		return 0, r.because(tooShort(err))
	}
	var tr ltx.Trailer
	err = tr.UnmarshalBinary(p)
	return tr.PostApplyChecksum, err
}

// tooShort returns that a file is damaged if it ends too early.
func tooShort(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("%w: it is too short", ltx.ErrInvalidFile)
	}
	return err
}
