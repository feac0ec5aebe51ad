// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// completions returns the words that a shell would offer, and the directive for the shell's
// own completion.
func completions(t *testing.T, args ...string) (words []string, directive string) {
	t.Helper()
	var out, errs bytes.Buffer
	if code := run(t.Context(), append([]string{cobra.ShellCompNoDescRequestCmd}, args...), &out, &errs); code != exitOK {
		t.Fatalf("%q: exit %d, %s", args, code, &errs)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	return lines[:len(lines)-1], lines[len(lines)-1]
}

func TestCompletion(t *testing.T) {
	const files, nothing, some, dirs = ":0", ":4", ":8", ":16"
	for _, test := range []struct {
		args, want, directive string
	}{
		{"bench file --workload |", "randread batch burner open append randwrite sync pebble", nothing},
		{"bench file --workload randread,|", "randread,batch randread,burner randread,open randread,append randread,randwrite randread,sync randread,pebble", nothing},
		{"bench file --fast=|", "add only none", nothing},
		{"bench net --client |", "own ab ab-k wrk", nothing},
		{"bench watch --mode |", "edge level one-shot", nothing},
		{"bench sqlite --journal |", "rollback delete-extra persist wal wal-normal", nothing},
		{"bench ring --ring |", "default defer", nothing},
		{"bench --dir |", "", dirs},
		{"bench --json |", "", files},
		{"bench --pairs |", "", nothing},
		{"compare |", "json", some},
		{"compare a.json |", "json", some},
		{"compare a.json b.json |", "", nothing},
		{"log |", "inspect replay salvage verify", nothing},
		{"log inspect |", "", dirs},
		{"log inspect x |", "", nothing},
		{"version |", "", nothing},
		{"help bench |", "file net ring sqlite watch", nothing},
		{"completion |", "bash fish powershell zsh", nothing},
	} {
		args := strings.Fields(test.args)
		args[len(args)-1] = strings.TrimSuffix(args[len(args)-1], "|")
		words, directive := completions(t, args...)
		if got := strings.Join(words, " "); got != test.want || directive != test.directive {
			t.Errorf("%s: %q %s, want %q %s", test.args, got, directive, test.want, test.directive)
		}
	}
}

// TestWordsAreInTheHelp compares the help text of a flag with the words that the flag
// accepts.
func TestWordsAreInTheHelp(t *testing.T) {
	var visit func(cmd *cobra.Command)
	seen := 0
	visit = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			complete, ok := cmd.GetFlagCompletionFunc(f.Name)
			if !ok {
				return
			}
			words, _ := complete(cmd, nil, "")
			for _, w := range words {
				seen++
				if !strings.Contains(f.Usage+cmd.Long, w) {
					t.Errorf("%s --%s accepts %q, but its help lacks it", cmd.CommandPath(), f.Name, w)
				}
			}
		})
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(newRootCmd(io.Discard, io.Discard))
	if seen < 30 {
		t.Errorf("only %d words were found", seen)
	}
}

// TestCompletionKeepsCommas checks that the script of bash escapes no commas, and that bash accepts it.
func TestCompletionKeepsCommas(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"completion", "bash"}, &out, &errs); code != exitOK {
		t.Fatalf("exit %d: %s", code, &errs)
	}
	if n := strings.Count(out.String(), ` | sed 's/\\,/,/g')`); n != 6 {
		t.Errorf("%d of 6 words keep their commas", n)
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("needs bash")
	}
	cmd := exec.CommandContext(t.Context(), bash, "-n")
	cmd.Stdin = &out
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, said)
	}
}
