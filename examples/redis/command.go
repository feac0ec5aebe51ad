// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"strconv"
)

// command executes one request and appends the answer to out. It reports
// whether the connection is to end.
func (s *store) command(out []byte, words [][]byte) (_ []byte, quit bool) {
	args := words[1:]
	var buf [8]byte
	switch name := string(upper(buf[:0], words[0])); {
	case name == "PING" && len(args) == 0:
		return append(out, "+PONG\r\n"...), false
	case (name == "PING" || name == "ECHO") && len(args) == 1:
		return bulk(out, args[0]), false
	case name == "GET" && len(args) == 1:
		value, ok := s.get(args[0])
		if !ok {
			return append(out, "$-1\r\n"...), false
		}
		return bulk(out, value), false
	case name == "SET" && len(args) == 2:
		if err := s.set(args[0], args[1]); err != nil {
			return fail(out, err), false
		}
		return append(out, "+OK\r\n"...), false
	case name == "DEL" && len(args) > 0:
		n := int64(0)
		for _, key := range args {
			if s.del(key) {
				n++
			}
		}
		return integer(out, n), false
	case name == "INCR" && len(args) == 1:
		n, err := s.incr(args[0])
		if err != nil {
			return fail(out, err), false
		}
		return integer(out, n), false
	case name == "QUIT":
		return append(out, "+OK\r\n"...), true
	case known[name]:
		return fail(out, fmt.Errorf("wrong number of arguments for %q", words[0])), false
	default:
		return fail(out, fmt.Errorf("unknown command %.32q", words[0])), false
	}
}

// upper appends a word in capitals. It stops after more bytes than any command has.
func upper(dst, word []byte) []byte {
	for _, b := range word[:min(len(word), cap(dst))] {
		if 'a' <= b && b <= 'z' {
			b -= 'a' - 'A'
		}
		dst = append(dst, b)
	}
	return dst
}

// known are the commands that take arguments.
var known = map[string]bool{"PING": true, "ECHO": true, "GET": true, "SET": true, "DEL": true, "INCR": true}

func bulk(out, value []byte) []byte {
	out = strconv.AppendInt(append(out, '$'), int64(len(value)), 10)
	out = append(append(out, "\r\n"...), value...)
	return append(out, "\r\n"...)
}

func integer(out []byte, n int64) []byte {
	return append(strconv.AppendInt(append(out, ':'), n, 10), "\r\n"...)
}

func fail(out []byte, err error) []byte {
	return fmt.Appendf(out, "-ERR %v\r\n", err)
}
