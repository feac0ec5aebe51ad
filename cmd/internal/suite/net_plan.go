// SPDX-License-Identifier: MIT

package suite

import (
	"fmt"
	"slices"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/echo"
	"github.com/ringside-io/ringside/cmd/internal/peers/liburing"
)

// NetOptions say what the suite "net" measures. The zero value is the default run.
type NetOptions struct {
	// Connections and Sizes replace an axis of the grid, Engines the list of engines.
	Connections []int
	Sizes       []int
	Engines     []string
	// Full measures every size at every number of connections, and 10,000 of them.
	Full bool
	// Pairs is the number of interleaved rounds of each engine (0: 5), Duration the length of
	// a measured window (0: 200 ms).
	Pairs    int
	Duration time.Duration
}

// netCell is one point of the grid.
type netCell struct{ connections, size int }

// netEngines are all engines, the one that others are compared to first.
var netEngines = []string{
	echo.NameStd, echo.NameNetpoll, liburing.Name, echo.NameEvent, echo.NameSQPoll, echo.NameConn,
}

const (
	maxConnections = 20_000
	maxMessage     = 1 << 20
)

// Validate returns an error that names the first option that makes no sense.
func (o NetOptions) Validate() error {
	for _, n := range o.Connections {
		if n < 1 || n > maxConnections {
			return fmt.Errorf("--connections %d: must be between 1 and %d", n, maxConnections)
		}
	}
	for _, n := range o.Sizes {
		if n < 1 || n > maxMessage {
			return fmt.Errorf("--size %d: must be between 1 and %d", n, maxMessage)
		}
	}
	for i, e := range o.Engines {
		if !slices.Contains(netEngines, e) || slices.Contains(o.Engines[:i], e) {
			return fmt.Errorf("--engine %q: must be one of %v, once", e, netEngines)
		}
	}
	if o.Pairs < 0 || o.Duration < 0 {
		return fmt.Errorf("--pairs and --duration must be positive")
	}
	return nil
}

// withDefaults fills in what was left open.
func (o NetOptions) withDefaults() NetOptions {
	if o.Pairs == 0 {
		o.Pairs = 5
	}
	if o.Duration == 0 {
		o.Duration = 200 * time.Millisecond
	}
	if len(o.Engines) == 0 {
		o.Engines = netEngines
	}
	return o
}

// cells returns the grid. By default larger messages are tried at three numbers of connections: few,
// many, and one.
func (o NetOptions) cells() []netCell {
	sizes := o.Sizes
	if len(sizes) == 0 {
		sizes = []int{128, 1024}
	}
	var out []netCell
	for i, size := range sizes {
		for _, n := range o.connectionsFor(i) {
			out = append(out, netCell{n, size})
		}
	}
	return out
}

func (o NetOptions) connectionsFor(size int) []int {
	switch {
	case len(o.Connections) > 0:
		return o.Connections
	case o.Full:
		return []int{1, 10, 50, 100, 500, 1000, 10_000}
	case size > 0:
		return []int{1, 100, 1000}
	}
	return []int{1, 10, 50, 100, 500, 1000}
}
