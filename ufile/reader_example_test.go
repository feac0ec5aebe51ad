// SPDX-License-Identifier: MIT

package ufile_test

import (
	"bufio"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/ringside-io/ringside/ufile"
)

// The next blocks are read while the lines of this one are being counted.
func ExampleReader() {
	path := filepath.Join(os.TempDir(), fmt.Sprint("ufile-reader-", os.Getpid()))
	if err := os.WriteFile(path, []byte(strings.Repeat("a line\n", 100_000)), 0o600); err != nil {
		log.Fatal(err)
	}
	defer os.Remove(path)
	f, err := ufile.Open(path) // with syscall.O_DIRECT it pays most
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	r := ufile.NewReader(f, ufile.ReaderOptions{})
	defer r.Close()
	lines := 0
	for s := bufio.NewScanner(r); s.Scan(); {
		lines++
	}
	fmt.Println(lines)
	// Output: 100000
}
