// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"regexp"
	"slices"

	"github.com/ringside-io/ringside/appendlog"
)

// segmentFile matches the names of the segments of a log of package appendlog.
var segmentFile = regexp.MustCompile(`^(.*)[0-9a-f]{16}\.seg$`)

// appendLogs returns the prefixes of the logs of package appendlog in a directory.
func appendLogs(dir string) (prefixes []string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if m := segmentFile.FindStringSubmatch(e.Name()); m != nil && !slices.Contains(prefixes, m[1]) {
			prefixes = append(prefixes, m[1])
		}
	}
	return prefixes
}

// appendReport describes a log of package appendlog.
type appendReport struct {
	Dir     string   `json:"dir"`
	Prefix  string   `json:"prefix"`
	Records uint64   `json:"records"`
	Bytes   uint64   `json:"bytes"`
	First   uint64   `json:"first"` // number of the first record that can be read
	Last    uint64   `json:"last"`
	Lost    uint64   `json:"lost"`   // records that are known to be lost
	Damage  []string `json:"damage"` // each damaged place, also those that were accepted
	Sound   bool     `json:"sound"`  // there is no damage, or all of it was accepted
}

// inspectAppendLog reads all of a log. It changes nothing.
func inspectAppendLog(dir, prefix string) (appendReport, error) {
	r := appendReport{Dir: dir, Prefix: prefix}
	for rec, err := range appendlog.Read(dir, appendlog.ReadOptions{Prefix: prefix, Salvage: true}) {
		var damage *appendlog.CorruptError
		switch {
		case errors.As(err, &damage):
			r.Lost += damage.Lost
			r.Damage = append(r.Damage, damage.Error())
		case err != nil:
			return r, err
		default:
			if r.Records++; r.First == 0 {
				r.First = rec.Seq
			}
			r.Last = rec.Seq
			r.Bytes += uint64(len(rec.Data))
		}
	}
	r.Sound = true
	for _, err := range appendlog.Read(dir, appendlog.ReadOptions{Prefix: prefix}) {
		r.Sound = r.Sound && err == nil
	}
	return r, nil
}

// eachAppendLog inspects the logs of package appendlog in a directory and prints them. It
// returns an error that matches fs.ErrNotExist if there is none.
func eachAppendLog(w io.Writer, dir string, asJSON bool) (damaged bool, err error) {
	prefixes := appendLogs(dir)
	if len(prefixes) == 0 {
		return false, fs.ErrNotExist
	}
	var all []appendReport
	for _, prefix := range prefixes {
		r, err := inspectAppendLog(dir, prefix)
		if err != nil {
			return false, err
		}
		all = append(all, r)
		damaged = damaged || !r.Sound
	}
	if asJSON {
		return damaged, writeJSON(w, all)
	}
	for _, r := range all {
		fmt.Fprintf(w, "%s: a log of package appendlog, prefix %q: %d records of %d bytes, numbers %d to %d, %d known to be lost\n",
			r.Dir, r.Prefix, r.Records, r.Bytes, r.First, r.Last, r.Lost)
		for _, d := range r.Damage {
			fmt.Fprintln(w, "  damaged:", d)
		}
	}
	return damaged, nil
}

// salvageAppendLog accepts the losses of the logs of package appendlog in a directory.
func salvageAppendLog(w io.Writer, dir string) error {
	prefixes := appendLogs(dir)
	if len(prefixes) == 0 {
		return fs.ErrNotExist
	}
	for _, prefix := range prefixes {
		l, err := appendlog.Open(dir, appendlog.Options{Prefix: prefix, AcceptLoss: true, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		lost := l.Recovery().Lost
		if err := l.Close(); err != nil {
			return err
		}
		fmt.Fprintf(w, "%s: prefix %q: the log can be opened; accepted losses: %d\n", dir, prefix, len(lost))
		for i := range lost {
			fmt.Fprintln(w, "  lost:", &lost[i])
		}
	}
	return nil
}
