// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"errors"
	"io"
	"os"
)

// outputFile is a result file that keeps its former content until there is a new one. A nil
// *outputFile writes nothing.
type outputFile struct {
	w io.Writer
	f *os.File
	// created tells that the file did not exist before, so that it is removed if nothing came.
	created, written bool
}

// openOutput opens the named file; "-" is standard output and "" none.
func openOutput(name string, stdout io.Writer) (*outputFile, error) {
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
	if err != nil {
		return nil, err
	}
	return &outputFile{w: f, f: f, created: created}, nil
}

// write replaces the content by what render produces.
func (o *outputFile) write(render func(io.Writer) error) error {
	if o == nil {
		return nil
	}
	var content bytes.Buffer
	if err := render(&content); err != nil {
		return err
	}
	if info, err := o.stat(); err == nil && info.Mode().IsRegular() {
		if err := o.f.Truncate(0); err != nil {
			return err
		}
	}
	_, err := o.w.Write(content.Bytes())
	o.written = err == nil
	return err
}

func (o *outputFile) stat() (os.FileInfo, error) {
	if o.f == nil {
		return nil, os.ErrInvalid
	}
	return o.f.Stat()
}

// close closes the file, and removes it if it was created for nothing.
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
