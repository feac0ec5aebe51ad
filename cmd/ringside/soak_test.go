// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/soak"
)

// TestSoakExitCodes runs the command on all summaries with which a run may end.
func TestSoakExitCodes(t *testing.T) {
	for _, tc := range []struct {
		sum  *soak.Summary
		err  error
		want string
		says string
	}{
		{&soak.Summary{}, nil, "<nil>", "all is well"},
		{&soak.Summary{Problems: []string{"wrong byte"}}, nil, "exit status 1", "problem: wrong byte"},
		{&soak.Summary{Problems: []string{"leak"}, Interrupted: true}, nil, "exit status 1", "FAILED"},
		{&soak.Summary{Interrupted: true, Seconds: 3}, nil, "after 3 s: context canceled", "interrupted"},
		{nil, fmt.Errorf("no such directory"), "no such directory", ""},
	} {
		for _, asJSON := range []bool{false, true} {
			s := &soakCommand{json: asJSON, need: datafile.Need,
				run: func(context.Context, soak.Options) (*soak.Summary, error) { return tc.sum, tc.err }}
			s.o.For = 1
			cmd := newSoakCmd()
			var out bytes.Buffer
			cmd.SetOut(&out)
			if err := s.execute(cmd); fmt.Sprint(err) != tc.want {
				t.Errorf("%+v: got %v, want %s", tc.sum, err, tc.want)
			}
			if !asJSON && !strings.Contains(out.String(), tc.says) || asJSON && tc.sum != nil && !json.Valid(out.Bytes()) {
				t.Errorf("%q is not in %q", tc.says, out.String())
			}
		}
	}
}

// TestSoakNeedsRoom checks the space before anything runs: on a full disk SQLite's errors would be
// reported as failed checks.
func TestSoakNeedsRoom(t *testing.T) {
	s := &soakCommand{run: soak.Run, need: func(dir string, bytes int64) error {
		return datafile.Need(dir, bytes+1<<60)
	}}
	s.o.For, s.o.Dir = time.Minute, t.TempDir()
	if err := s.execute(newSoakCmd()); err == nil || !strings.Contains(err.Error(), "not enough space in "+s.o.Dir) {
		t.Error(err)
	}
}

func TestSoakArguments(t *testing.T) {
	for args, says := range map[string]string{
		"soak --for 0s":                  "--for",
		"soak --rows disks":              `--rows "disks"`,
		"soak --replay 7":                "--replay",
		"soak --replay 7 --rows sqlite":  "--replay",
		"soak extra":                     `"extra"`,
		"soak --for 1s --rows files,fil": `--rows "fil"`,
	} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), strings.Fields(args), &out, &errs); code != exitUsage || !strings.Contains(errs.String(), says) {
			t.Errorf("%q: exit %d, %s%s", args, code, &out, &errs)
		}
	}
}
