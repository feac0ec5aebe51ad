// SPDX-License-Identifier: MIT

package gotree

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// program reads a file and connects to itself. It prints the types that the tree's packages hide.
const program = `package main

import (
	"fmt"
	"io"
	"net"
	"os"
	_ "ringside/ufile"
	_ "ringside/unet"
)

func main() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go func() {
		c, err := l.Accept()
		if err != nil {
			panic(err)
		}
		io.Copy(c, c)
		c.Close()
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		panic(err)
	}
	c.Write([]byte("hello"))
	c.(*net.TCPConn).CloseWrite()
	said, err := io.ReadAll(c)
	f, openErr := os.Open(os.Args[0])
	p := make([]byte, 4)
	n, readErr := f.ReadAt(p, 0)
	fmt.Printf("%s %v %v %d %q %v\n", said, err, openErr, n, p, readErr)
}
`

// TestTree builds a program in the tree and runs it in the mode that needs no kernel feature.
func TestTree(t *testing.T) {
	if testing.Short() {
		t.Skip("needs half a minute: left out with -short")
	}
	dir := t.TempDir()
	tree, err := Make(filepath.Join(dir, "go"), filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	main := filepath.Join(dir, "main.go")
	if err := os.WriteFile(main, []byte(program), 0o666); err != nil {
		t.Fatal(err)
	}
	exe := filepath.Join(dir, "main")
	build := exec.Command(filepath.Join(tree.Root, "bin", "go"), "build", "-o", exe, main)
	build.Dir, build.Env = dir, tree.Env()
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for mode, backend := range map[string]string{"": "", "plain": "plain"} {
		used := filepath.Join(dir, "used"+mode)
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), "RINGSIDE_TREE_MODE="+mode, "RINGSIDE_TREE_USED="+used)
		out, err := cmd.CombinedOutput()
		if want := "hello <nil> <nil> 4 \"\\x7fELF\" <nil>\n"; err != nil || string(out) != want {
			t.Errorf("mode %q: %v, %q, want %q", mode, err, out, want)
		}
		said, _ := os.ReadFile(used)
		for _, pkg := range []string{"ufile", "unet"} {
			if strings.Contains(string(said), pkg+" ") != (backend != "") {
				t.Errorf("mode %q: %q of %s", mode, said, pkg)
			}
		}
	}
}

// TestOtherSource checks that a rule without a match is an error: Go's source has changed, and the
// rule must be adapted.
func TestOtherSource(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "src", "os"), 0o777); err != nil {
		t.Fatal(err)
	}
	err := (&Tree{Root: root}).patchOS()
	if err == nil || !strings.Contains(err.Error(), "no structure File") || !strings.Contains(err.Error(), "no function .OpenFile") {
		t.Errorf("patchOS of an empty package: %v", err)
	}
}
