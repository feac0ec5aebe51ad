// SPDX-License-Identifier: MIT

package ufile_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"slices"
	"testing"

	"github.com/ringside-io/ringside/ufile"
)

func contains(names []string, name string) bool { return slices.Contains(names, name) }

// attributes are the calls about one file.
type attributes struct {
	get    func(attr string) ([]byte, error)
	set    func(attr string, value []byte, flags ufile.XattrFlags) error
	list   func() ([]string, error)
	remove func(attr string) error
}

func TestXattr(t *testing.T) {
	s := newSystem(t, ufile.Options{})
	path := fileOf(t, nil)
	f := open(t, s, path, os.O_RDONLY)
	t.Run("File", func(t *testing.T) {
		xattr(t, "f", path, attributes{f.Getxattr, f.Setxattr, f.Listxattr, f.Removexattr})
	})
	t.Run("System", func(t *testing.T) {
		xattr(t, "", path, attributes{
			func(a string) ([]byte, error) { return ufile.Getxattr(path, a) },
			func(a string, v []byte, fl ufile.XattrFlags) error { return ufile.Setxattr(path, a, v, fl) },
			func() ([]string, error) { return ufile.Listxattr(path) },
			func(a string) error { return ufile.Removexattr(path, a) },
		})
	})
	t.Run("Functions", func(t *testing.T) {
		xattr(t, "", path, attributes{
			func(a string) ([]byte, error) { return ufile.Getxattr(path, a) },
			func(a string, v []byte, fl ufile.XattrFlags) error { return ufile.Setxattr(path, a, v, fl) },
			func() ([]string, error) { return ufile.Listxattr(path) },
			func(a string) error { return ufile.Removexattr(path, a) },
		})
	})
	f.Close()
	if _, err := f.Getxattr("user.x"); !errors.Is(err, os.ErrClosed) {
		t.Errorf("of a closed file: %v", err)
	}
}

func xattr(t *testing.T, prefix, path string, a attributes) {
	if err := a.set("user.ringside.a", []byte("one"), 0); errors.Is(err, errors.ErrUnsupported) {
		t.Skipf("needs extended attributes: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	large := random(2000)
	for _, err := range []error{
		a.set("user.ringside.a", []byte("two"), ufile.XattrReplace),
		a.set("user.ringside.b", large, ufile.XattrCreate),
		a.set("user.ringside.c", nil, 0),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	for attr, want := range map[string][]byte{"user.ringside.a": []byte("two"), "user.ringside.b": large, "user.ringside.c": {}} {
		if got, err := a.get(attr); !bytes.Equal(got, want) || err != nil {
			t.Errorf("%s = %d bytes, %v", attr, len(got), err)
		}
		if got, err := a.list(); !contains(got, attr) || err != nil {
			t.Errorf("%s is not in %q, %v", attr, got, err)
		}
		if err := a.remove(attr); err != nil {
			t.Error(err)
		}
		if got, err := a.list(); contains(got, attr) || err != nil {
			t.Errorf("%s is still in %q, %v", attr, got, err)
		}
	}
	_, getErr := a.get("user.ringside.a")
	refused(t, getErr, prefix+"getxattr", path, ufile.ErrNoXattr)
	refused(t, a.remove("user.ringside.a"), prefix+"removexattr", path, ufile.ErrNoXattr)
	refused(t, a.set("user.ringside.a", nil, ufile.XattrReplace), prefix+"setxattr", path, ufile.ErrNoXattr)
	refused(t, a.set("no namespace", nil, 0), prefix+"setxattr", path, errors.ErrUnsupported)
	if err := a.set("user.ringside.a", nil, 0); err != nil {
		t.Error(err)
	}
	refused(t, a.set("user.ringside.a", nil, ufile.XattrCreate), prefix+"setxattr", path, fs.ErrExist)
	if err := a.remove("user.ringside.a"); err != nil {
		t.Error(err)
	}
}

// refused checks an error of os's kind.
func refused(t *testing.T, err error, op, path string, want error) {
	t.Helper()
	if e, ok := err.(*fs.PathError); !ok || e.Op != op || e.Path != path || !errors.Is(err, want) {
		t.Errorf("%v, not %s %s: %v", err, op, path, want)
	}
}
