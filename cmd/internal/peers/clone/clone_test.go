// SPDX-License-Identifier: MIT

package clone

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestBuildNamesWhatIsMissing(t *testing.T) {
	for _, name := range Names {
		if _, err := Build(t.Context(), name, ""); err == nil || !strings.Contains(err.Error(), "--"+Flag(name)+" DIR") {
			t.Errorf("%s without a clone: %v", name, err)
		}
		if _, err := Build(t.Context(), name, t.TempDir()); err == nil || !strings.Contains(err.Error(), "is not a clone") {
			t.Errorf("%s of an empty directory: %v", name, err)
		}
	}
	if Is("std") || Is("") {
		t.Error("an engine of another package")
	}
}

// TestBuildGo compiles the program with a library that has as much of gnet as the program
// uses.
func TestBuildGo(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module github.com/panjf2000/gnet/v2\n\ngo 1.20\n",
		"gnet.go": `package gnet

type (
	Action              int
	Option              func()
	Engine              struct{}
	BuiltinEventEngine  struct{}
	Conn                interface {
		Next(int) ([]byte, error)
		Write([]byte) (int, error)
	}
)

const (
	None Action = iota
	Close
)

func (Engine) Dup() (int, error)           { return 0, nil }
func WithMulticore(bool) Option            { return nil }
func WithNumEventLoop(int) Option          { return nil }
func Run(any, string, ...Option) error     { return nil }
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p, err := Build(t.Context(), GnetOne, dir)
	if err != nil {
		t.Fatal(err)
	}
	if c := p.Command(); len(c) != 2 || c[1] != "one" || !strings.HasPrefix(p.Version(), GnetOne) {
		t.Errorf("command %q, version %q", c, p.Version())
	}
	if _, err := os.Stat(p.Command()[0]); err != nil {
		t.Error(err)
	}
	if err := p.Remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(p.dir); !os.IsNotExist(err) {
		t.Errorf("%s was not removed: %v", p.dir, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "gnet.go"), []byte("package gnet\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Build(t.Context(), Gnet, dir); err == nil || !strings.Contains(err.Error(), "go build") {
		t.Errorf("an incomplete library: %v", err)
	}
}
