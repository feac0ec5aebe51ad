// SPDX-License-Identifier: MIT

//go:build unix

package fileserver

import (
	"net"
	"path/filepath"
	"syscall"
	"testing"
)

// TestSpecialFiles requests special files. The response is "not found", without waiting for the
// file.
func TestSpecialFiles(t *testing.T) {
	dir := tree(t, map[string]string{"a.txt": "text"})
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o644); err != nil {
		t.Skipf("named pipes: %v", err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "a.txt.gz"), 0o644); err != nil {
		t.Fatal(err)
	}
	if ln, err := net.Listen("unix", filepath.Join(dir, "socket")); err == nil { // otherwise the path is too long
		defer ln.Close()
	}
	if err := syscall.Mknod(filepath.Join(dir, "null"), syscall.S_IFCHR|0o666, 1<<8|3); err != nil {
		t.Logf("devices: %v", err)
	}
	addr := start(t, dir, Options{})
	for _, name := range []string{"/pipe", "/socket", "/null", "/pipe/", "/pipe/index.html/x"} {
		if a := ask(t, addr, "GET", name, nil); a.status != 404 {
			t.Errorf("%s: %d %q", name, a.status, a.body)
		}
	}
	if a := ask(t, addr, "GET", "/a.txt", fields("Accept-Encoding: gzip")); a.body != "text" {
		t.Errorf("beside a pipe: %+v", a)
	}
}
