// SPDX-License-Identifier: MIT

package report

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestKeptResults reads the result files that the repository keeps.
func TestKeptResults(t *testing.T) {
	files, err := filepath.Glob("../../../results/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, wrong := range checkKept(strings.TrimSuffix(filepath.Base(path), ".json"), b) {
			t.Errorf("%s: %s", path, wrong)
		}
	}
}

// checkKept returns the errors of a kept result file.
func checkKept(name string, b []byte) (wrong []string) {
	doc, err := ReadDocument(bytes.NewReader(b))
	if err != nil {
		return []string{err.Error()}
	}
	if len(doc.Results) == 0 || doc.Host.Kernel == "" || doc.Host.Pairs == 0 {
		wrong = append(wrong, "no results, or their origin is missing")
	}
	for _, r := range doc.Results {
		full := r.Suite + "-" + r.Workload
		if name != r.Suite && name != r.Suite+"-more" && name != full && !strings.HasPrefix(name, full+"-") {
			return append(wrong, "the name is not that of "+full)
		}
	}
	return wrong
}

func TestReadDocument(t *testing.T) {
	for in, says := range map[string]string{
		`{"host":{"kernel":"6.1"}}`:           "",
		`{"schema":1}`:                        "",
		`{"schema":2,"notes":["x"]}`:          "",
		`{"schema":5}`:                        "newer ringside: schema 5",
		`{"schema":5,"colour":"blue"}`:        "newer ringside: schema 5",
		`{"schema":2,"colour":"blue"}`:        "colour",
		`{"results":[{"metrics":{"x":"y"}}]}`: "unexpected JSON string",
		`{}`:                                  "it has no results",
		`[1]`:                                 "unexpected JSON array",
		`{"schema":3,`:                        "it is cut off",
		``:                                    "it is empty",
	} {
		d, err := ReadDocument(strings.NewReader(in))
		if says == "" && (err != nil || d == nil) || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%s: %v", in, err)
		}
	}
}

func TestCheckKept(t *testing.T) {
	var b bytes.Buffer
	if err := exampleRun().WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	for name, ok := range map[string]bool{
		"file": true, "file-randread": true, "file-randread-nvme": true, "ring": false, "file-append": false, "file-randreadx": false,
	} {
		if wrong := checkKept(name, b.Bytes()); (len(wrong) == 0) != ok {
			t.Errorf("%s: %v", name, wrong)
		}
	}
	for _, bad := range []string{"", "{}", `{"host":{"kernel":"6.18"},"extra":1}`} {
		if len(checkKept("file", []byte(bad))) == 0 {
			t.Errorf("%q was accepted", bad)
		}
	}
}
