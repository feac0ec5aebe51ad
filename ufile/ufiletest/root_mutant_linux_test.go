// SPDX-License-Identifier: MIT

package ufiletest

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// rootMutants are Roots with one fault each, and the test that must fail.
var rootMutants = map[string]struct {
	caught string
	wrap   func(r osRoot) Root
}{
	"leads outside":       {"Root/Open", func(r osRoot) Root { return &leaky{r} }},
	"another Op":          {"Root/Look", func(r osRoot) Root { return &otherOp{r} }},
	"bare error":          {"Root/Change", func(r osRoot) Root { return &bareRemove{r} }},
	"replaces":            {"Root/Two", func(r osRoot) Root { return &replacing{r} }},
	"entries by path":     {"Root/Moved", func(r osRoot) Root { return &byPath{r} }},
	"works after Close":   {"Root/Closed", func(r osRoot) Root { return &immortal{r} }},
	"no deadlines":        {"Root/Files", func(r osRoot) Root { return &blocking{r} }},
	"sub of its own name": {"Root/Sub", func(r osRoot) Root { return &subName{r} }},
	"no such FS":          {"Root/FSNames", func(r osRoot) Root { return &otherFS{r} }},
}

// TestRootMutant runs the suite on a mutant, in a child process.
func TestRootMutant(t *testing.T) {
	m, ok := rootMutants[os.Getenv(envMutant)]
	if !ok {
		return // this is no child
	}
	RunRoot(t, func(dir string) (Root, error) {
		r, err := os.OpenRoot(dir)
		if err != nil {
			return nil, err
		}
		return m.wrap(osRoot{r}), nil
	})
}

// TestEveryRootFaultIsSeen runs the mutants in child processes, which must fail.
func TestEveryRootFaultIsSeen(t *testing.T) {
	if os.Getenv(envMutant) != "" {
		return
	}
	if testing.Short() {
		t.Skip("checks the suite, not an implementation: not with -short")
	}
	for name, m := range rootMutants {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.timeout=60s", "-test.short", "-test.run=^TestRootMutant$/^"+strings.ReplaceAll(m.caught, "/", "$/^")+"$")
			cmd.Env = append(os.Environ(), envMutant+"="+name)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: TestRootMutant/"+m.caught) {
				t.Errorf("%s did not fail: %v\n%s", m.caught, err, out)
			}
		})
	}
}

// leaky joins names.
type leaky struct{ osRoot }

func (m *leaky) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	f, err := m.osRoot.OpenFile(name, flag, perm)
	if err != nil && strings.HasPrefix(name, "../") {
		return OS(filepath.Join(m.Name(), name), flag, perm)
	}
	return f, err
}

type otherOp struct{ osRoot }

func (m *otherOp) Stat(name string) (fs.FileInfo, error) {
	info, err := m.osRoot.Stat(name)
	if e, ok := err.(*fs.PathError); ok {
		e.Op = "stat"
	}
	return info, err
}

type bareRemove struct{ osRoot }

func (m *bareRemove) Remove(name string) error {
	err := m.osRoot.Remove(name)
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

// replacing renames as the kernel does, which replaces an empty directory by another.
type replacing struct{ osRoot }

func (m *replacing) Rename(from, to string) error {
	err := m.osRoot.Rename(from, to)
	if errors.Is(err, syscall.EEXIST) {
		return os.NewSyscallError("rename", syscall.Rename(filepath.Join(m.Name(), from), filepath.Join(m.Name(), to)))
	}
	return err
}

// byPath opens directories whose entries are looked up by path.
type byPath struct{ osRoot }

func (m *byPath) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	if f, err := OS(filepath.Join(m.Name(), name), flag, perm); err == nil {
		return f, nil
	}
	return m.osRoot.OpenFile(name, flag, perm)
}

type immortal struct{ osRoot }

func (m *immortal) OpenRoot(name string) (Root, error) {
	if r, err := OSRoot(filepath.Join(m.Name(), name)); err == nil {
		return r, nil
	}
	return m.osRoot.OpenRoot(name)
}

// blocking opens without the netpoller.
type blocking struct{ osRoot }

func (m *blocking) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	fd, err := syscall.Open(filepath.Join(m.Name(), name), flag|syscall.O_CLOEXEC, uint32(perm))
	if err != nil {
		return m.osRoot.OpenFile(name, flag, perm)
	}
	return os.NewFile(uintptr(fd), filepath.Join(m.Name(), name)), nil
}

type subName struct{ osRoot }

func (m *subName) OpenRoot(name string) (Root, error) {
	r, err := m.osRoot.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	return &shortName{r}, nil
}

type shortName struct{ Root }

func (m *shortName) Name() string { return filepath.Base(m.Root.Name()) }

type otherFS struct{ osRoot }

func (m *otherFS) FS() fs.FS { return os.DirFS(m.Name()) }
