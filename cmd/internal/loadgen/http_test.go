// SPDX-License-Identifier: MIT

//go:build linux

package loadgen

import "testing"

func TestAnswer(t *testing.T) {
	const text = "HTTP/1.1 200 OK\r\nDate: Fri, 20 Nov 2026 16:27:10 GMT\r\nContent-Length: 2\r\n\r\nhi"
	later := []byte("HTTP/1.1 200 OK\r\nDate: Sat, 21 Dec 2027 23:59:59 GMT\r\nContent-Length: 2\r\n\r\nhi")
	a := newAnswer([]byte(text))
	for i := range later {
		for j := i; j <= len(later); j++ {
			if err := a.compare(i, later[i:j]); err != nil {
				t.Fatalf("%q: %v", later[i:j], err)
			}
		}
	}
	for _, i := range []int{0, 16, 22, 52, len(text) - 1} {
		wrong := []byte(text)
		wrong[i]++
		for _, from := range []int{0, i} {
			if a.compare(from, wrong[from:]) == nil {
				t.Errorf("%q from position %d was accepted", wrong, from)
			}
		}
	}
	plain := newAnswer([]byte("HTTP/1.1 200 OK\r\n\r\n"))
	if plain.compare(0, plain.text) != nil || plain.compare(1, []byte("x")) == nil {
		t.Error("a response without a date was accepted")
	}
}
