// SPDX-License-Identifier: MIT

package htmlreport

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ringside-io/ringside/cmd/internal/report"
)

// without names a cell by all of its parameters but one.
func without(c report.Cell, param string) string {
	words := []string{c.Workload}
	for _, key := range slices.Sorted(maps.Keys(c.Params)) {
		switch key {
		case param, "device":
		case "block", "size", "record":
			if n, ok := number(c.Params[key]); ok {
				words = append(words, report.FormatBytes(int64(n)))
				continue
			}
			words = append(words, fmt.Sprint(c.Params[key]))
		case "cache":
			words = append(words, map[any]string{"hot": "page cache hot", "direct": "O_DIRECT", "cold": "page cache cold"}[c.Params[key]])
		case "mode", "journal", "source", "client", "storage", "what":
			words = append(words, fmt.Sprint(c.Params[key]))
		default:
			words = append(words, fmt.Sprintf("%s %v", key, c.Params[key]))
		}
	}
	return strings.Join(words, ", ")
}

// short writes a number as an axis does: 1.5k, 20k, 3M.
func short(v float64) string {
	for _, u := range []struct {
		size float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if v >= u.size {
			return trim(v/u.size) + u.name
		}
	}
	return trim(v)
}

// trim writes up to three significant digits.
func trim(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) }
