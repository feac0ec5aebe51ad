// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/ringside-io/ringside/internal/cli"
)

// outputFile is a result file that keeps its old content until there is a new one. A nil
// *outputFile discards writes.
type outputFile struct {
	w io.Writer
	f *os.File
	// created reports whether the file is new. A new file is removed if nothing was written.
	created, written bool
}

// openOutput opens the file that a flag names. "-" is standard output, and "" means no file.
func openOutput(flag, name string, stdout io.Writer) (*outputFile, error) {
	switch name {
	case "":
		return nil, nil
	case "-":
		return &outputFile{w: stdout}, nil
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	created := err == nil
	if errors.Is(err, os.ErrExist) {
		f, err = os.OpenFile(name, os.O_WRONLY, 0)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s %s: no such directory: make it, or name another file", flag, name)
	case errors.Is(err, syscall.EISDIR):
		return nil, fmt.Errorf("%s %s: is a directory: name a file in it", flag, name)
	case err != nil:
		return nil, fmt.Errorf("%s: %w: name another file", flag, err)
	}
	return &outputFile{w: f, f: f, created: created}, nil
}

// write replaces the content with the output of render.
func (o *outputFile) write(render func(io.Writer) error) error {
	if o == nil {
		return nil
	}
	var content bytes.Buffer
	if err := render(&content); err != nil {
		return err
	}
	if info, err := o.stat(); err == nil && info.Mode().IsRegular() {
		if ok, err := o.replace(info, content.Bytes()); ok {
			return err
		}
		if err := o.f.Truncate(0); err != nil {
			return err
		}
	}
	_, err := o.w.Write(content.Bytes())
	o.written = err == nil
	return err
}

// replace writes a new file and renames it to the old one, which a failure leaves unchanged. It
// returns false if the old file must be written to: it is new, its name is a symbolic link, or its
// directory cannot be written to.
func (o *outputFile) replace(old os.FileInfo, content []byte) (ok bool, err error) {
	name := o.f.Name()
	if own, err := os.Lstat(name); o.created || err != nil || !os.SameFile(own, old) {
		return false, nil
	}
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*")
	if err != nil {
		return !errors.Is(err, fs.ErrPermission), err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(old.Mode().Perm()), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return true, errors.Join(err, os.Remove(f.Name()))
	}
	return true, nil
}

func (o *outputFile) stat() (os.FileInfo, error) {
	if o.f == nil {
		return nil, os.ErrInvalid
	}
	return o.f.Stat()
}

// close closes the file, and removes it if it is new and nothing was written.
func (o *outputFile) close() error {
	if o == nil || o.f == nil {
		return nil
	}
	err := o.f.Close()
	if o.created && !o.written {
		err = errors.Join(err, os.Remove(o.f.Name()))
	}
	return err
}

// isTerminal reports whether w is a terminal that understands control sequences.
func isTerminal(w io.Writer) bool {
	if out, ok := w.(*cli.Output); ok {
		w = out.Unwrap()
	}
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}

// screenWidth returns the number of columns of a terminal, and 0 for other outputs.
func screenWidth(w io.Writer) int {
	width, _ := screenSize(w)
	return width
}

// screenSize returns the columns and lines of a terminal, and zeros for other outputs.
func screenSize(w io.Writer) (columns, lines int) {
	if !isTerminal(w) {
		return 0, 0
	}
	if out, ok := w.(*cli.Output); ok {
		w = out.Unwrap()
	}
	columns, lines, err := term.GetSize(int(w.(*os.File).Fd()))
	if err != nil {
		return 0, 0
	}
	return columns, lines
}

// wantColor reports whether w may have colours. It follows the NO_COLOR convention. Files and pipes
// never have colours.
func wantColor(w io.Writer) bool { return os.Getenv("NO_COLOR") == "" && isTerminal(w) }

// wantDirectory returns an error if the value of a flag is not an existing directory. An empty value
// is allowed.
func wantDirectory(flag, dir string) error {
	if dir == "" {
		return nil
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s %s: no such directory: name one that exists", flag, dir)
	case err != nil:
		return fmt.Errorf("%s: %w", flag, err)
	case !info.IsDir():
		return fmt.Errorf("%s %s: is not a directory: name a directory", flag, dir)
	}
	return nil
}

// until returns the result of f, or the context's error if the context ends first. Reading a named
// pipe, or writing to a blocked reader, would otherwise continue after a signal. f must leave
// nothing behind.
func until[T any](ctx context.Context, f func() (T, error)) (result T, err error) {
	type answer struct {
		result T
		err    error
	}
	done := make(chan answer, 1)
	go func() {
		result, err := f()
		done <- answer{result, err}
	}()
	select {
	case a := <-done:
		return a.result, a.err
	case <-ctx.Done():
		return result, ctx.Err()
	}
}

// promptly makes a command return as soon as its context ends. The command must leave nothing
// behind.
func promptly(run func(cmd *cobra.Command, args []string) error) func(cmd *cobra.Command, args []string) error {
	return func(cmd *cobra.Command, args []string) error {
		_, err := until(cmd.Context(), func() (struct{}, error) { return struct{}{}, run(cmd, args) })
		return err
	}
}
