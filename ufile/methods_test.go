// SPDX-License-Identifier: MIT

package ufile_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"testing"

	"github.com/ringside-io/ringside/ufile"
)

// without lists the methods of os.File that File does not have, each with the reason.
var without = map[string]string{}

// TestMethods compares the methods and their types with those of os.File.
func TestMethods(t *testing.T) {
	theirs, ours := reflect.TypeFor[*os.File](), reflect.TypeFor[*ufile.File]()
	for i := range theirs.NumMethod() {
		want := theirs.Method(i)
		got, ok := ours.MethodByName(want.Name)
		switch reason, excused := without[want.Name]; {
		case ok && excused:
			t.Errorf("File has %s although %s", want.Name, reason)
		case !ok && !excused:
			t.Errorf("File lacks %s", want.Name)
		case ok && !sameType(got.Type, want.Type):
			t.Errorf("%s is %v, want %v", want.Name, got.Type, want.Type)
		}
	}
	for name := range without {
		if _, ok := theirs.MethodByName(name); !ok {
			t.Errorf("os.File has no %s", name)
		}
	}
}

// TestMethodsOfNil calls every method of a nil pointer with zero arguments, and
// of a closed file.
func TestMethodsOfNil(t *testing.T) {
	path := fileOf(t, []byte("data"))
	var closed struct {
		theirs *os.File
		ours   *ufile.File
	}
	var err error
	if closed.theirs, err = os.Open(path); err != nil {
		t.Fatal(err)
	}
	closed.ours = open(t, newSystem(t, ufile.Options{}), path, os.O_RDONLY)
	closed.theirs.Close()
	closed.ours.Close()
	theirs := reflect.TypeFor[*os.File]()
	for i := range theirs.NumMethod() {
		name := theirs.Method(i).Name
		if _, ok := without[name]; ok {
			continue
		}
		if got, want := answers((*ufile.File)(nil), name), answers((*os.File)(nil), name); got != want {
			t.Errorf("nil: %s = %s, want %s", name, got, want)
		}
		switch name {
		case "SyscallConn", "ReadFrom", "WriteTo": // Stat returns a pointer; the suite calls these with arguments
			continue
		}
		if got, want := answers(closed.ours, name), answers(closed.theirs, name); got != want {
			t.Errorf("closed: %s = %s, want %s", name, got, want)
		}
	}
}

// answers calls a method with zero arguments and formats its results.
func answers(file any, method string) (s string) {
	defer func() {
		if recover() != nil {
			s = "panic"
		}
	}()
	m := reflect.ValueOf(file).MethodByName(method)
	var args []reflect.Value
	for i := range m.Type().NumIn() {
		args = append(args, reflect.Zero(m.Type().In(i)))
	}
	for _, result := range m.Call(args) {
		s += fmt.Sprintf("%v, ", result.Interface())
	}
	return s
}

// TestRareMethods uses the methods that the suite leaves out, because they change the whole
// process or the owner of a file.
func TestRareMethods(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	overModes(t, func(t *testing.T, s *ufile.System) {
		d := open(t, s, dir, os.O_RDONLY)
		if names, err := d.Readdirnames(-1); err != nil || !slices.Equal(names, []string{"file"}) {
			t.Errorf("Readdirnames: %q, %v", names, err)
		}
		if _, err := d.Seek(0, 0); err != nil {
			t.Error(err)
		}
		if infos, err := d.Readdir(-1); err != nil || len(infos) != 1 || infos[0].Name() != "file" {
			t.Errorf("Readdir: %v, %v", infos, err)
		}
		if err := d.Chown(-1, -1); err != nil && runtime.GOOS != "windows" {
			t.Errorf("Chown without a change: %v", err)
		}
		t.Chdir(".") // the end of the test restores the directory
		if err := d.Chdir(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat("file"); err != nil {
			t.Errorf("after Chdir: %v", err)
		}
	})
}

// sameType compares the types of methods without their receivers.
func sameType(a, b reflect.Type) bool {
	if a.NumIn() != b.NumIn() || a.NumOut() != b.NumOut() || a.IsVariadic() != b.IsVariadic() {
		return false
	}
	for i := 1; i < a.NumIn(); i++ {
		if a.In(i) != b.In(i) {
			return false
		}
	}
	for i := range a.NumOut() {
		if a.Out(i) != b.Out(i) {
			return false
		}
	}
	return true
}
