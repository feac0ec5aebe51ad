// SPDX-License-Identifier: MIT

package probereport

// Style says how a report is dressed.
type Style struct {
	// Color allows ANSI escape sequences.
	Color bool
}

const (
	bold   = "1"
	red    = "31"
	green  = "32"
	yellow = "33"
)

func (s Style) paint(code, text string) string {
	if !s.Color || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}
