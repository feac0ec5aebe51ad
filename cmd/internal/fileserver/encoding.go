// SPDX-License-Identifier: MIT

package fileserver

import (
	"strconv"
	"strings"
)

// acceptsGzip reports whether a client wants gzip at least as much as no encoding at all.
func acceptsGzip(fields []string) bool {
	zip, identity, others := -1.0, -1.0, -1.0
	for _, field := range fields {
		for one := range strings.SplitSeq(field, ",") {
			coding, q := quality(one)
			switch coding {
			case "gzip", "x-gzip":
				zip = q
			case "identity":
				identity = q
			case "*":
				others = q
			}
		}
	}
	if zip < 0 {
		zip = others
	}
	return zip > 0 && zip >= identity
}

// quality splits an element of Accept-Encoding; what makes no sense is not wanted.
func quality(one string) (coding string, q float64) {
	coding, params, found := strings.Cut(one, ";")
	coding = strings.ToLower(strings.TrimSpace(coding))
	if !found {
		return coding, 1
	}
	name, value, _ := strings.Cut(params, "=")
	if !strings.EqualFold(strings.TrimSpace(name), "q") {
		return coding, 1
	}
	q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	if err != nil || !(q >= 0 && q <= 1) {
		return coding, 0
	}
	return coding, q
}

// compressible reports whether content of a type usually shrinks.
func compressible(ctype string) bool {
	ctype, _, _ = strings.Cut(ctype, ";")
	ctype = strings.ToLower(strings.TrimSpace(ctype))
	if strings.HasPrefix(ctype, "text/") || strings.HasSuffix(ctype, "+json") || strings.HasSuffix(ctype, "+xml") {
		return true
	}
	switch ctype {
	case "application/javascript", "application/json", "application/xml", "application/wasm", "application/rtf",
		"application/x-javascript", "application/vnd.ms-fontobject", "font/ttf", "font/otf", "image/bmp", "image/x-icon",
		"image/vnd.microsoft.icon":
		return true
	}
	return false
}
