// SPDX-License-Identifier: MIT

package report

import (
	"fmt"
	"strconv"
)

// formatNumber prints about four significant digits, as readers of benchmark tables expect.
func formatNumber(v float64) string {
	decimals := 0
	switch {
	case v < 9.9995:
		decimals = 3
	case v < 99.995:
		decimals = 2
	case v < 999.95:
		decimals = 1
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}

// formatCount prints what is usually a whole number or nearly zero.
func formatCount(v float64) string {
	switch {
	case v < 0.005:
		return "0"
	case v < 9.995 && v != float64(int(v)):
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

// formatWhole prints a count that is whole except for a median between two.
func formatWhole(v float64) string { return strconv.FormatFloat(v, 'f', 0, 64) }

// formatPercent prints a share.
func formatPercent(v float64) string { return strconv.FormatFloat(100*v, 'f', 0, 64) + " %" }

// FormatBytes prints a size in the largest binary unit that divides it, such as "64 KiB".
func FormatBytes(n int64) string {
	for _, u := range []struct {
		size int64
		name string
	}{{1 << 40, "TiB"}, {1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= u.size && n%u.size == 0 {
			return fmt.Sprintf("%d %s", n/u.size, u.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}
