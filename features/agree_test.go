// SPDX-License-Identifier: MIT

package features_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/internal/probe"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

// claims are the functions without arguments, each with the first kernel that has the
// feature.
var claims = []struct {
	name  string
	since string
	have  func() error
}{
	{"HaveIOURing", "5.6", features.HaveIOURing},
	{"HaveMultishotPoll", "5.13", features.HaveMultishotPoll},
	{"HaveMultishotAccept", "5.19", features.HaveMultishotAccept},
	{"HaveMultishotRecv", "6.0", features.HaveMultishotRecv},
	{"HaveBufRing", "5.19", features.HaveBufRing},
	{"HaveDeferTaskrun", "6.1", features.HaveDeferTaskrun},
	{"HaveSQPoll", "5.13", features.HaveSQPoll}, // without a capability
}

// agree fails when the kernel and the claim differ. Where a feature is missing, the kernel
// must be older than claimed. The kernels of the lanes have no backports, so there a
// feature must be missing on an older kernel.
func agree(t *testing.T, since string, err error) {
	t.Helper()
	want, perr := probe.ParseVersion(since)
	have, kerr := probe.Kernel()
	if perr != nil || kerr != nil {
		t.Fatal(perr, kerr)
	}
	older := have.Less(want)
	switch {
	case err == nil && older && os.Getenv(ringtest.LaneEnv) != "":
		t.Errorf("Linux %s has it, although the claim is %s", have, want)
	case errors.Is(err, errors.ErrUnsupported) && older:
		if !strings.Contains(err.Error(), "needs Linux ") {
			t.Errorf("%q does not name a version", err)
		}
	case err != nil:
		t.Errorf("Linux %s: %v", have, err)
	}
}

func TestClaims(t *testing.T) {
	ringtest.NeedRing(t)
	for _, c := range claims {
		t.Run(c.name, func(t *testing.T) { agree(t, c.since, c.have()) })
	}
}

// tables returns the tables of a report by name.
func tables(r probe.Report) map[string][]probe.Entry {
	return map[string][]probe.Entry{"feature": r.Features, "op": r.Ops, "setup": r.Setup,
		"register": r.Register, "enter": r.Enter, "behaviour": r.Behaviours}
}

func TestTableClaims(t *testing.T) {
	ringtest.NeedRing(t)
	for kind, table := range tables(probe.Collect()) {
		for _, e := range table {
			t.Run(kind+"/"+e.Name, func(t *testing.T) {
				var err error
				switch e.Answer {
				case probe.Unsupported:
					err = &features.UnsupportedError{Feature: e.Name, Since: e.Since, Reason: e.Reason}
				case probe.Forbidden, probe.Inconclusive:
					err = errors.New(e.Reason)
				}
				agree(t, e.Since, err)
			})
		}
	}
}

// TestClaimsComplete checks that every function of the package has a claim, so that each is
// tested.
func TestClaimsComplete(t *testing.T) {
	ringtest.NeedTree(t)
	claimed := map[string]bool{"HaveOp": true, "HaveSetup": true, "HaveRegister": true, "HaveFeature": true}
	for _, c := range claims {
		claimed[c.name] = true
	}
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Have") && !claimed[fn.Name.Name] {
				t.Errorf("%s has no claim", fn.Name.Name)
			}
		}
	}
}

var versionAtEnd = regexp.MustCompile(`(\d\.\d+)\)?\s*$`)

// TestSince compares the versions with those in the documentation of package uring.
func TestSince(t *testing.T) {
	ringtest.NeedTree(t)
	r := probe.Collect()
	prefixes := []struct {
		file, prefix string
		table        []probe.Entry
	}{
		{"op.go", "IORING_OP_", r.Ops},
		{"register.go", "IORING_", r.Register},
		{"flags.go", "IORING_SETUP_", r.Setup},
		{"flags.go", "IORING_FEAT_", r.Features},
		{"../internal/abi/setup.go", "IORING_ENTER_", r.Enter},
	}
	for _, p := range prefixes {
		since := documented(t, filepath.Join("..", "uring", p.file), p.prefix)
		if len(since) != len(p.table) {
			t.Errorf("%s: %d constants begin with %s, the report has %d", p.file, len(since), p.prefix, len(p.table))
		}
		for _, e := range p.table {
			if got, ok := since[e.Name]; !ok || got != e.Since {
				t.Errorf("%s%s: uring has %q, features has %q", p.prefix, e.Name, got, e.Since)
			}
		}
	}
}

// documented returns the version at the end of the comment of each constant whose name or
// value has the prefix.
func documented(t *testing.T, file, prefix string) map[string]string {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	since := map[string]string{}
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 || spec.Comment == nil {
			return true
		}
		name := spec.Names[0].Name // the kernel's constants, in internal/abi
		if sel, ok := spec.Values[0].(*ast.SelectorExpr); ok {
			name = sel.Sel.Name
		}
		name, ok = strings.CutPrefix(name, prefix)
		if m := versionAtEnd.FindStringSubmatch(spec.Comment.Text()); ok && m != nil {
			since[name] = m[1]
		}
		return true
	})
	return since
}

// TestFunctionsAndReport checks that the functions with an argument agree with the report.
func TestFunctionsAndReport(t *testing.T) {
	ringtest.NeedRing(t)
	r := probe.Collect()
	for _, table := range []struct {
		entries []probe.Entry
		have    func(number uint64) error
	}{
		{r.Ops, func(n uint64) error { return features.HaveOp(uring.Op(n)) }},
		{r.Setup, func(n uint64) error { return features.HaveSetup(uring.SetupFlags(n)) }},
		{r.Register, func(n uint64) error { return features.HaveRegister(uring.RegisterOp(n)) }},
		{r.Features, func(n uint64) error { return features.HaveFeature(uring.Features(n)) }},
	} {
		for _, e := range table.entries {
			if err := table.have(e.Number); (err == nil) != e.Supported {
				t.Errorf("%s: got %v, the report has %v", e.Name, err, e.Supported)
			}
		}
	}
}

func TestModeNames(t *testing.T) {
	for m := features.ModeAuto; m <= features.ModeNet; m++ {
		if got, err := features.ParseMode(m.String()); got != m || err != nil {
			t.Errorf("%v: %v, %v", m, got, err)
		}
	}
	if got := features.Mode(99).String(); got != "Mode(99)" {
		t.Error(got)
	}
}
