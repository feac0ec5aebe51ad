// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"errors"
)

// Limits of one request.
const (
	maxArgs    = 1024
	maxBulk    = 1 << 20 // bytes of one argument
	maxRequest = 2 << 20 // bytes of the whole request
	maxLine    = 64 << 10
	maxDigits  = 9
)

var (
	errArgs   = errors.New("invalid number of arguments")
	errBulk   = errors.New("invalid length of an argument")
	errDollar = errors.New("an argument must begin with '$'")
	errEnd    = errors.New("an argument must end with a line break")
	errLong   = errors.New("the request is too long")
)

// parse returns the words of the first request in b, which are parts of b, and its
// length. The length is 0 when the request is incomplete. A request without
// words, an empty line, has a length and is no error. An error is final: the start
// of the next request is unknown then.
func parse(b []byte, args [][]byte) (words [][]byte, length int, err error) {
	switch {
	case len(b) == 0:
		return nil, 0, nil
	case b[0] != '*':
		return parseInline(b, args)
	}
	words, length, err = parseArray(b, args)
	if err == nil && (length > maxRequest || length == 0 && len(b) > maxRequest) {
		err = errLong
	}
	return words, length, err
}

// parseInline parses a line of words.
func parseInline(b []byte, args [][]byte) (words [][]byte, length int, err error) {
	end := bytes.IndexByte(b, '\n')
	if end > maxLine || end < 0 && len(b) > maxLine {
		return nil, 0, errLong
	}
	if end < 0 {
		return nil, 0, nil
	}
	for word := range bytes.FieldsSeq(b[:end]) {
		if len(args) == maxArgs {
			return nil, 0, errArgs
		}
		args = append(args, word)
	}
	return args, end + 1, nil
}

// parseArray parses *N and then N times $LENGTH, each on a line, and LENGTH bytes
// followed by a line break.
func parseArray(b []byte, args [][]byte) (words [][]byte, length int, err error) {
	n, at, ok := number(b, 1)
	if !ok || n > maxArgs {
		return nil, 0, errArgs
	}
	if at == 0 {
		return nil, 0, nil
	}
	for range max(n, 0) {
		if at == len(b) {
			return nil, 0, nil
		}
		if b[at] != '$' {
			return nil, 0, errDollar
		}
		size, from, ok := number(b, at+1)
		if !ok || from > 0 && (size < 0 || size > maxBulk) {
			return nil, 0, errBulk
		}
		if from == 0 || len(b) < from+size+2 {
			return nil, 0, nil
		}
		at = from + size + 2
		if b[at-2] != '\r' || b[at-1] != '\n' {
			return nil, 0, errEnd
		}
		args = append(args, b[from:from+size])
	}
	return args, at, nil
}

// number reads a number that ends with a line break from b[at:]. next is the index
// after the line break, 0 when that has not arrived. ok is false when it is not a
// number.
func number(b []byte, at int) (n, next int, ok bool) {
	negative := at < len(b) && b[at] == '-'
	if negative {
		at++
	}
	start := at
	for ; at < len(b) && b[at] >= '0' && b[at] <= '9'; at++ {
		if at == start+maxDigits {
			return 0, 0, false
		}
		n = n*10 + int(b[at]-'0')
	}
	if negative {
		n = -n
	}
	switch {
	case at == len(b):
		return n, 0, true
	case b[at] != '\r' || at == start:
		return 0, 0, false
	case at+1 == len(b):
		return n, 0, true
	}
	return n, at + 2, b[at+1] == '\n'
}
