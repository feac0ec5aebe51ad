// SPDX-License-Identifier: MIT

package vm

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/ringside-io/ringside/internal/testing/vm/wire"
)

// File is a file or directory of the host that is copied to the guest.
type File struct {
	// Host is the path to read; a directory is copied with its content.
	Host string
	// Guest is the absolute path in the guest.
	Guest string
}

// makeInitramfs writes the compressed archive the kernel starts from.
func makeInitramfs(dst, init string, plan wire.Plan, files []File) (err error) {
	f, err := os.Create(dst)
	if err != nil {
		return err
	}
	defer func() {
		if err2 := f.Close(); err == nil {
			err = err2
		}
	}()
	zip, err := gzip.NewWriterLevel(f, gzip.BestSpeed)
	if err != nil {
		return err
	}
	if err := writeArchive(zip, init, plan, files); err != nil {
		return err
	}
	return zip.Close()
}

func writeArchive(out io.Writer, init string, plan wire.Plan, files []File) error {
	planJSON, err := json.Marshal(plan)
	if err != nil {
		return err
	}
	w := newCPIO(out)
	for _, dir := range []string{"proc", "sys", "scratch"} {
		w.dir(dir, 0o755)
	}
	w.dir("root", 0o700)
	w.dir("tmp", 0o777)
	// The first process gets the console as its descriptors 0 to 2. Go's runtime
	// needs all three.
	w.char("dev/console", 0o600, 5, 1)
	w.char("dev/null", 0o666, 1, 3)
	// The files that os/user and net read.
	w.bytes("etc/passwd", 0o644, "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n")
	w.bytes("etc/group", 0o644, "root:x:0:\nnogroup:x:65534:\n")
	w.bytes("etc/hosts", 0o644, "127.0.0.1 localhost\n::1 localhost\n")
	w.bytes(wire.PlanPath, 0o644, string(planJSON))
	if err := addPath(w, File{Host: init, Guest: "/init"}); err != nil {
		return err
	}
	for _, f := range files {
		if err := addPath(w, f); err != nil {
			return err
		}
	}
	return w.close()
}

// addPath adds a file or a tree. Other objects than files and directories in a tree
// are an error: testdata must not contain them.
func addPath(w *cpioWriter, f File) error {
	return filepath.WalkDir(f.Host, func(host string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(f.Host, host)
		if err != nil {
			return err
		}
		info, err := os.Stat(host)
		if err != nil {
			return err
		}
		guest := path.Join(f.Guest, filepath.ToSlash(rel))
		switch {
		case d.IsDir():
			w.dir(guest, 0o755)
			return nil
		case info.Mode().IsRegular():
			return addFile(w, host, guest, info)
		}
		return fmt.Errorf("%s is neither file nor directory", host)
	})
}

func addFile(w *cpioWriter, host, guest string, info fs.FileInfo) error {
	data, err := os.Open(host)
	if err != nil {
		return err
	}
	defer data.Close()
	w.file(guest, uint32(info.Mode().Perm())|0o444, info.Size(), data)
	return w.err
}
