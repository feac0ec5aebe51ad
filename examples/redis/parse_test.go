// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		in     string
		words  []string
		length int
		err    error
	}{
		{"", nil, 0, nil},
		{"PING\r\n", []string{"PING"}, 6, nil},
		{"PING\nGET", []string{"PING"}, 5, nil},
		{"  SET a\tb \r\n", []string{"SET", "a", "b"}, 12, nil},
		{"\r\nPING\r\n", nil, 2, nil},
		{"PIN", nil, 0, nil},
		{strings.Repeat("x", maxLine+1), nil, 0, errLong},
		{strings.Repeat("x ", maxArgs+1) + "\n", nil, 0, errArgs},
		{"*1\r\n$4\r\nPING\r\nrest", []string{"PING"}, 14, nil},
		{"*2\r\n$3\r\nGET\r\n$0\r\n\r\n", []string{"GET", ""}, 19, nil},
		{"*2\r\n$3\r\nGET\r\n$2\r\n\r\n\r\n", []string{"GET", "\r\n"}, 21, nil},
		{"*0\r\nPING\r\n", nil, 4, nil},
		{"*-1\r\nPING\r\n", nil, 5, nil},
		{"*", nil, 0, nil},
		{"*\r\n", nil, 0, errArgs},
		{"*x\r\n", nil, 0, errArgs},
		{"*1\rx", nil, 0, errArgs},
		{"*1025\r\n", nil, 0, errArgs},
		{"*0000000000", nil, 0, errArgs},
		{"*1\r\n:4\r\n", nil, 0, errDollar},
		{"*1\r\n$-1\r\n", nil, 0, errBulk},
		{"*1\r\n$1048577\r\n", nil, 0, errBulk},
		{"*1\r\n$99999999999999999999\r\n", nil, 0, errBulk},
		{"*1\r\n$4\r\nPINGxx", nil, 0, errEnd},
		{"*3\r\n" + strings.Repeat("$1000000\r\n"+strings.Repeat("x", 1_000_000)+"\r\n", 3), nil, 0, errLong},
	} {
		words, length, err := parse([]byte(c.in), nil)
		got, want := fmt.Sprintf("%q", words), fmt.Sprintf("%q", c.words)
		if err != nil || length == 0 {
			got, want = "[]", "[]"
		}
		if got != want || !errors.Is(err, c.err) || err == nil && length != c.length {
			t.Errorf("%.40q: %s, %d, %v; want %s, %d, %v", c.in, got, length, err, want, c.length, c.err)
		}
	}
}

// FuzzParse gives every beginning of an input: the answer for a part is that more
// is needed, or the same as for the whole.
// Promise: examples/memory-peer-occupy
func FuzzParse(f *testing.F) {
	f.Add([]byte("*2\r\n$3\r\nGET\r\n$1\r\na\r\nPING\r\n"))
	f.Add([]byte("set a 1\n*-1\r\n*1\r\n$-5\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		words, length, err := parse(b, nil)
		if length < 0 || length > len(b) {
			t.Fatalf("length %d of %d", length, len(b))
		}
		for i := range min(len(b), 200) {
			w, n, e := parse(b[:i], nil)
			switch {
			case e != nil && (err == nil || e.Error() != err.Error()):
				t.Fatalf("%q: %v, but %q: %v", b[:i], e, b, err)
			case e == nil && n > 0 && (n != length || !bytes.Equal(bytes.Join(w, nil), bytes.Join(words, nil))):
				t.Fatalf("%q: %q, but %q: %q", b[:i], w, b, words)
			}
		}
	})
}
