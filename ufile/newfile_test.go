// SPDX-License-Identifier: MIT

package ufile_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/ringside-io/ringside/ufile"
)

func TestNewFileTakesOwnership(t *testing.T) {
	overModes(t, func(t *testing.T, s *ufile.System) {
		content := random(5000)
		theirs, err := os.Open(fileOf(t, content))
		if err != nil {
			t.Fatal(err)
		}
		f, err := s.NewFile(theirs)
		if err != nil {
			t.Fatal(err)
		}
		if f.Name() != theirs.Name() || f.Fd() != theirs.Fd() {
			t.Error("another name or descriptor")
		}
		p := make([]byte, 5000)
		readAt(t, f, p, 0)
		if !bytes.Equal(p, content) {
			t.Error("read other data than the file holds")
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if err := theirs.Close(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("Close of the os.File that NewFile took: %v", err)
		}
	})
}

func TestNewFileOfAPipe(t *testing.T) {
	overModes(t, func(t *testing.T, s *ufile.System) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		f, err := s.NewFile(r)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		go w.WriteString("through the pipe")
		p := make([]byte, 16)
		if n, err := io.ReadFull(f, p); string(p) != "through the pipe" {
			t.Errorf("%d, %v, %q", n, err, p[:n])
		}
		if n, err := f.ReadAt(p, 0); n != 0 || err == nil {
			t.Errorf("ReadAt of a pipe = %d, %v", n, err)
		}
	})
}

func TestNewFileOfNothing(t *testing.T) {
	if _, err := ufile.NewFile(nil); !errors.Is(err, os.ErrInvalid) {
		t.Errorf("of nil: %v", err)
	}
	theirs, err := os.Open(fileOf(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	if _, err := ufile.NewFile(theirs); !errors.Is(err, os.ErrClosed) {
		t.Errorf("of a closed file: %v", err)
	}
	if err := new(ufile.File).Close(); !errors.Is(err, os.ErrInvalid) {
		t.Errorf("Close of a zero File: %v", err)
	}
}

// TestOpenAndCreate uses the functions that TestSuite does not use.
func TestOpenAndCreate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new")
	s := newSystem(t, ufile.Options{})
	for _, create := range []func(string) (*ufile.File, error){ufile.Create, s.Create} {
		f, err := create(path)
		if err != nil {
			t.Fatal(err)
		}
		writeAt(t, f, []byte("data"), 3)
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		for _, open := range []func(string) (*ufile.File, error){ufile.Open, s.Open} {
			f, err := open(path)
			if err != nil {
				t.Fatal(err)
			}
			p := make([]byte, 10)
			if n, err := f.ReadAt(p, 0); string(p[:n]) != "\x00\x00\x00data" || err != io.EOF {
				t.Errorf("%q, %v", p[:n], err)
			}
			if n, err := f.WriteAt(p, 0); n != 0 || err == nil {
				t.Errorf("Write to a file opened for reading = %d, %v", n, err)
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := ufile.Open(filepath.Join(path, "none")); err == nil {
		t.Error("Open of a missing file succeeded")
	}
}

// TestFunctionsOfTheDefaultSystem creates a file by CreateTemp and one by a Root, and reads
// both through DirFS. Total counts these operations.
func TestFunctionsOfTheDefaultSystem(t *testing.T) {
	before, dir := ufile.Total(), t.TempDir()
	temp, err := ufile.CreateTemp(dir, "temp-*")
	if err != nil {
		t.Fatal(err)
	}
	defer temp.Close()
	root, err := ufile.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	made, err := root.Create("made")
	if err != nil {
		t.Fatal(err)
	}
	defer made.Close()
	for _, f := range []*ufile.File{temp, made} {
		writeAt(t, f, []byte("data"), 0)
		if p, err := fs.ReadFile(ufile.DirFS(dir), filepath.Base(f.Name())); string(p) != "data" || err != nil {
			t.Errorf("%s: %q, %v", f.Name(), p, err)
		}
	}
	if after := ufile.Total(); after.Plain+after.Ring < before.Plain+before.Ring+2 {
		t.Errorf("before %+v, after %+v", before, after)
	}
}
