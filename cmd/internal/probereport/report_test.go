// SPDX-License-Identifier: MIT

package probereport

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/internal/probe"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares with a file in testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	name = filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(name, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; got\n%s\nwant\n%s", name, got, want)
	}
}

func yes(name string, number uint64, since string) probe.Entry {
	return probe.Entry{Name: name, Number: number, Since: since, Supported: true, Answer: probe.Yes}
}

func no(name string, number uint64, since string) probe.Entry {
	return probe.Entry{Name: name, Number: number, Since: since, Answer: probe.Unsupported,
		Reason: "the kernel says so itself", Remedy: "run Linux " + since + " or later"}
}

// all returns entries with one result.
func all(a probe.Answer, known *bool, entries ...probe.Entry) []probe.Entry {
	for i := range entries {
		e := &entries[i]
		e.Supported, e.Answer, e.Known, e.Reason, e.Remedy = a == probe.Yes, a, known, "", ""
	}
	return entries
}

// usable is a host that lacks a feature.
func usable() probe.Report {
	return probe.Report{
		OS: "linux", Arch: "amd64", Kernel: "6.1.0-56-amd64", Usable: true, Answer: probe.Yes,
		Seccomp: new(0), SeccompFilters: new(0), Memlock: probe.Memlock{Soft: new(int64(65536)), Hard: new(int64(-1))},
		LSMs: []string{"apparmor"}, Context: "unconfined",
		Features: []probe.Entry{yes("SINGLE_MMAP", 1, "5.4"), yes("NODROP", 2, "5.5"), no("RW_ATTR", 1<<16, "6.14")},
		Ops: []probe.Entry{yes("NOP", 0, "5.1"), yes("READV", 1, "5.1"), yes("SYNC_FILE_RANGE", 8, "5.2"), yes("SEND_ZC", 47, "6.0"),
			no("READ_MULTISHOT", 49, "6.7"), no("WAITID", 50, "6.7"), no("FUTEX_WAIT", 51, "6.7"), no("RECV_ZC", 58, "6.15")},
		Setup:    []probe.Entry{yes("IOPOLL", 1, "5.1")},
		Register: []probe.Entry{yes("REGISTER_BUFFERS", 0, "5.1"), no("REGISTER_QUERY", 35, "6.18")},
		Enter:    []probe.Entry{no("NO_IOWAIT", 128, "6.15")},
		Behaviours: []probe.Entry{yes("multishot accept", 0, "5.19"),
			{Name: "SQPOLL", Since: "5.11", Answer: probe.Forbidden, Reason: "the kernel refuses it", Remedy: "give the process the capability"},
			{Name: "zero-copy send", Since: "6.0", Answer: probe.Inconclusive, Reason: "bind: out of addresses"}},
		Packages: []probe.Package{{Name: "ufile", Backend: "io_uring", Reason: "the kernel has what it needs"}},
		Notes:    []probe.Note{{About: "memlock", Text: "rings may lock 64 KiB per user", Remedy: "ulimit -l unlimited"}},
	}
}

// forbidden is the report of a host on which a policy forbids io_uring.
func forbidden() probe.Report {
	const reason, remedy = "the sysctl kernel.io_uring_disabled is 2, which forbids it to every process", "sysctl -w kernel.io_uring_disabled=0"
	return probe.Report{
		OS: "linux", Arch: "arm64", Kernel: "6.18.1", Answer: probe.Forbidden, Policy: string(features.PolicySysctl), Reason: reason, Remedy: remedy,
		Disabled: new(2), Group: new(-1), Seccomp: new(2), SeccompFilters: new(3), Container: "docker",
		Memlock:    probe.Memlock{Soft: new(int64(8 << 20)), Hard: new(int64(8 << 20)), Exempt: true},
		LSMs:       []string{},
		Features:   all(probe.Forbidden, new(true), yes("SINGLE_MMAP", 1, "5.4"), yes("NODROP", 2, "5.5")),
		Ops:        append(all(probe.Forbidden, new(true), yes("NOP", 0, "5.1")), all(probe.Forbidden, new(false), yes("PIPE", 62, "6.16"))...),
		Setup:      all(probe.Forbidden, nil, yes("IOPOLL", 1, "5.1")),
		Behaviours: all(probe.Forbidden, nil, yes("multishot accept", 0, "5.19")),
		Packages:   []probe.Package{{Name: "ufile", Backend: "plain", Reason: "forbidden: " + reason, Remedy: remedy}},
		Notes:      []probe.Note{},
	}
}

// old is a kernel without io_uring, foreign is another system, short is a moment without
// descriptors.
func old() probe.Report {
	return probe.Report{
		OS: "linux", Arch: "amd64", Kernel: "4.19.0", Answer: probe.Unsupported, Reason: "this is 4.19.0", Remedy: "run Linux 5.6 or later",
		Seccomp: new(0), Memlock: probe.Memlock{Soft: new(int64(65536)), Hard: new(int64(65536))},
		Features: all(probe.Unsupported, nil, yes("SINGLE_MMAP", 1, "5.4")),
		Ops:      all(probe.Unsupported, nil, yes("NOP", 0, "5.1")),
		Packages: []probe.Package{{Name: "ufile", Backend: "plain", Reason: "io_uring needs Linux 5.6: this is 4.19.0"}},
	}
}

func foreign() probe.Report {
	return probe.Report{
		OS: "darwin", Arch: "arm64", Answer: probe.Unsupported, Reason: "this is darwin", Remedy: "run Linux 5.6 or later", Override: "plain",
		Ops: all(probe.Unsupported, nil, yes("NOP", 0, "5.1")),
	}
}

func short() probe.Report {
	return probe.Report{
		OS: "linux", Arch: "amd64", Kernel: "6.12.1", Answer: probe.Inconclusive,
		Reason: "cannot determine whether io_uring works: io_uring_setup: too many open files",
		Ops:    all(probe.Inconclusive, nil, yes("NOP", 0, "5.1")),
	}
}

var fakes = map[string]func() probe.Report{
	"usable": usable, "forbidden": forbidden, "old": old, "foreign": foreign, "short": short,
}

func text(t *testing.T, r probe.Report, s report.Style) string {
	t.Helper()
	var b strings.Builder
	if err := WriteText(&b, r, s); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestText(t *testing.T) {
	for name, fake := range fakes {
		t.Run(name, func(t *testing.T) { golden(t, name+".txt", []byte(text(t, fake(), report.Style{}))) })
	}
}

var escape = regexp.MustCompile("\x1b\\[[0-9]*m")

// Colours add only control sequences, and do not change the columns.
func TestColor(t *testing.T) {
	for name, fake := range fakes {
		plain, colored := text(t, fake(), report.Style{}), text(t, fake(), report.Style{Color: true})
		if strings.Contains(plain, "\x1b") {
			t.Errorf("%s: unrequested colours", name)
		}
		if !strings.Contains(colored, "\x1b") {
			t.Errorf("%s: no colours", name)
		}
		if stripped := escape.ReplaceAllString(colored, ""); stripped != plain {
			t.Errorf("%s: without colours, got\n%s\nwant\n%s", name, stripped, plain)
		}
	}
}

func TestJSON(t *testing.T) {
	for _, name := range []string{"usable", "forbidden"} {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		if err := enc.Encode(fakes[name]()); err != nil {
			t.Fatal(err)
		}
		golden(t, name+".json", b.Bytes())
		var back probe.Report
		if err := json.Unmarshal(b.Bytes(), &back); err != nil {
			t.Fatal(err)
		}
		if want := fakes[name](); !reflect.DeepEqual(back, want) {
			t.Errorf("%s: parsed as\n%+v\nwant\n%+v", name, back, want)
		}
	}
}

func TestChoice(t *testing.T) {
	no := &features.ForbiddenError{Feature: "io_uring", Reason: "a filter", Remedy: "remove it"}
	tests := []struct {
		backend, reason string
		answer          error
		want            probe.Package
	}{
		{"io_uring", "", nil, probe.Package{Name: "p", Backend: "io_uring", Reason: "the kernel has what it needs and lets this process use it"}},
		{"plain", no.Error(), no, probe.Package{Name: "p", Backend: "plain", Reason: "forbidden: a filter", Remedy: "remove it"}},
		{"plain", "another reason", no, probe.Package{Name: "p", Backend: "plain", Reason: "another reason"}},
		{"plain", "too old", errors.ErrUnsupported, probe.Package{Name: "p", Backend: "plain", Reason: "too old"}},
	}
	for _, test := range tests {
		if got := choice("p", test.backend, test.reason, test.answer); got != test.want {
			t.Errorf("got %+v, want %+v", got, test.want)
		}
	}
}

// The real report must be complete wherever the tests run.
func TestCollect(t *testing.T) {
	r := Collect()
	if r.Usable != (features.HaveIOURing() == nil) {
		t.Errorf("usable is %v, but the error is %v", r.Usable, features.HaveIOURing())
	}
	for _, s := range sections(r) {
		if len(s.entries) == 0 {
			t.Errorf("no %s", s.title)
		}
	}
	if len(r.Packages) == 0 || r.Packages[0].Name != "ufile" || r.Packages[0].Backend == "" || r.Packages[0].Reason == "" {
		t.Errorf("packages %+v", r.Packages)
	}
	if !r.Usable && r.Reason == "" {
		t.Error("no reason")
	}
}
