// SPDX-License-Identifier: MIT

package vm

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// kernelPackages picks from the output of "apt-cache search" (or any list with
// a package name first on each line) the cloud kernels of the given version,
// such as "6.1", and architecture, newest first. It skips metapackages, debug symbols,
// unsigned images and real-time kernels.
func kernelPackages(search, version, arch string) []string {
	// 6.1.0-56-cloud-amd64 in Debian 12, 6.12.117+deb13-cloud-amd64 later.
	image := regexp.MustCompile(`^linux-image-` + regexp.QuoteMeta(version) + `\.[0-9][0-9a-z.+~-]*-cloud-` + regexp.QuoteMeta(arch) + `$`)
	var names []string
	for line := range strings.Lines(search) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if image.MatchString(name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return compareNumbers(b, a) })
	return names
}

// compareNumbers orders package names by the numbers in them, 6.1.0-9 before
// 6.1.0-10, and by their letters if those are equal.
func compareNumbers(a, b string) int {
	order := slices.CompareFunc(numbers(a), numbers(b), func(x, y int) int { return cmp.Compare(x, y) })
	if order != 0 {
		return order
	}
	return strings.Compare(a, b)
}

func numbers(s string) []int {
	var list []int
	for _, digits := range strings.FieldsFunc(s, func(r rune) bool { return r < '0' || r > '9' }) {
		n, err := strconv.Atoi(digits)
		if err == nil {
			list = append(list, n)
		}
	}
	return list
}
