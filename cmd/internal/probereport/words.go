// SPDX-License-Identifier: MIT

package probereport

import (
	"fmt"
	"strings"

	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/features"
)

const unknown = "unknown"

func orWord(s, word string) string {
	if s == "" {
		return word
	}
	return s
}

func disabled(v *int) string {
	if v == nil {
		return "not there (it came with Linux 6.6)"
	}
	switch *v {
	case 0:
		return "0: allowed to every process"
	case 1:
		return "1: allowed to CAP_SYS_ADMIN and the group below"
	case 2:
		return "2: forbidden to every process"
	}
	return fmt.Sprint(*v)
}

func group(v *int) string {
	switch {
	case v == nil:
		return "not there"
	case *v < 0:
		return fmt.Sprintf("%d: no group", *v)
	}
	return fmt.Sprint(*v)
}

func seccomp(mode, filters *int) string {
	if mode == nil {
		return unknown
	}
	switch *mode {
	case 0:
		return "off"
	case 1:
		return "strict"
	case 2:
		if filters != nil && *filters > 1 {
			return fmt.Sprintf("%d filters", *filters)
		}
		return "a filter"
	}
	return fmt.Sprint(*mode)
}

func memlock(m features.Memlock) string {
	s := fmt.Sprintf("%s soft, %s hard", limit(m.Soft), limit(m.Hard))
	if m.Exempt {
		s += ", not binding with CAP_IPC_LOCK"
	}
	return s
}

func limit(n *int64) string {
	switch {
	case n == nil:
		return unknown
	case *n < 0:
		return "unlimited"
	}
	return report.FormatBytes(*n)
}

func modules(names []string, context string) string {
	s := orWord(strings.Join(names, ", "), "none seen")
	if context != "" {
		s += " (this process: " + context + ")"
	}
	return s
}
