// SPDX-License-Identifier: MIT

package report

import (
	"fmt"
	"strings"

	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// WatchLayout arranges the suite "watch": a table for each source of events, and those of ab for the
// web server.
var WatchLayout = Layout{
	Without: []string{measure.OpsPerS, measure.Threads}, // Watching is told by its time, and has one thread.
	Section: func(c Cell) string {
		if isHTTP(c) {
			return httpTitle(c)
		}
		return fmt.Sprintf("%s, %s", c.Workload, sourceWords(c.Params["source"]))
	},
	Draw: func(c Cell) DrawFunc {
		if isHTTP(c) {
			return drawHTTP
		}
		return nil
	},
	Row: func(c Cell, engine string) string {
		if mode, ok := c.Params["mode"]; ok {
			engine += fmt.Sprintf("_%v_%v", mode, c.Params["active"])
		}
		if idle, ok := c.Params["idle"]; ok {
			engine += fmt.Sprintf("+%v", idle)
		}
		return engine
	},
	Point: func(c Cell) string {
		var words []string
		if mode, ok := c.Params["mode"]; ok {
			words = append(words, fmt.Sprintf("%v %v", mode, c.Params["active"]))
		}
		if idle, ok := c.Params["idle"]; ok {
			words = append(words, fmt.Sprintf("beside %v idle", idle))
		}
		switch {
		case isHTTP(c):
			return "requests"
		case len(words) == 0:
			return "a wake"
		}
		return strings.Join(words, " ")
	},
	Subject: "io_uring",
}

func sourceWords(source any) string {
	switch source {
	case "eventfd":
		return "eventfds"
	case "socketpair":
		return "pairs of sockets"
	case "wake":
		return "wakes from another goroutine"
	}
	return fmt.Sprint(source)
}
