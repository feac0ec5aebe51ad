// SPDX-License-Identifier: MIT

package report

import "fmt"

// EntersPerOp is how many calls of io_uring_enter(2) an engine needed for one operation.
const EntersPerOp = "enters_per_op"

// NetLayout arranges the suite "net": a table for each size of messages.
var NetLayout = Layout{
	Section: func(c Cell) string { return fmt.Sprintf("%s, %s", c.Workload, pointBytes(c.Params["size"])) },
	Row:     func(c Cell, engine string) string { return fmt.Sprintf("%s_%v", engine, c.Params["connections"]) },
	Point:   func(c Cell) string { return plural(c.Params["connections"], "connection") },
	Subject: "ringside-event",
}
