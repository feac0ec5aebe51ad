// SPDX-License-Identifier: MIT

package syncprobe

import (
	"fmt"
	"io"
	"strings"
)

// WriteText writes the report for people.
func (r Report) WriteText(w io.Writer) error {
	var b strings.Builder
	where := r.Dir
	if r.Device != "" {
		where += fmt.Sprintf(" (%s, %s)", r.Device, r.Filesystem)
	}
	fmt.Fprintf(&b, "\nmaking %d bytes durable in %s, µs: median (min–max) of %d\n", Size, where, Rounds)
	for _, way := range r.Ways {
		value := fmt.Sprintf("%6.0f (%.0f–%.0f)", way.Median, way.Min, way.Max)
		if way.Reason != "" {
			value = "not measured: " + way.Reason
		}
		fmt.Fprintf(&b, "  %-36s %s\n", way.Name, value)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
