// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// parseSize reads a number of bytes such as 4096, 64K, 64KiB or 1M; units are binary.
func parseSize(text string) (int64, error) {
	digits := strings.TrimRight(text, "KMGTkmgtiIbB")
	unit := strings.TrimSuffix(strings.TrimSuffix(strings.ToUpper(text[len(digits):]), "B"), "I")
	shift, ok := map[string]int{"": 0, "K": 10, "M": 20, "G": 30, "T": 40}[unit]
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || !ok || n < 0 || n > math.MaxInt64>>shift {
		return 0, fmt.Errorf("%q is not a size: give bytes, or a number with K, M or G", text)
	}
	return n << shift, nil
}

// sizeFlag is a flag with a size.
type sizeFlag struct{ n *int64 }

func (s sizeFlag) String() string {
	if s.n == nil || *s.n == 0 {
		return ""
	}
	return strconv.FormatInt(*s.n, 10)
}

func (s sizeFlag) Set(text string) error {
	n, err := parseSize(text)
	*s.n = n
	return err
}

func (sizeFlag) Type() string { return "size" }

// sizesFlag is a flag with a list of sizes, separated by commas or given repeatedly.
type sizesFlag struct{ list *[]int }

func (s sizesFlag) String() string {
	if s.list == nil || len(*s.list) == 0 {
		return ""
	}
	return strings.Trim(fmt.Sprint(*s.list), "[]")
}

func (s sizesFlag) Set(text string) error {
	for part := range strings.SplitSeq(text, ",") {
		n, err := parseSize(strings.TrimSpace(part))
		if err != nil {
			return err
		}
		if n > math.MaxInt32 {
			return fmt.Errorf("%q is too large", part)
		}
		*s.list = append(*s.list, int(n))
	}
	return nil
}

func (sizesFlag) Type() string { return "sizes" }
