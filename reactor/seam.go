// SPDX-License-Identifier: MIT

package reactor

import "github.com/ringside-io/ringside/internal/ringseam"

// Tests of what stands on reactors put simulated rings below them.
var _ = ringseam.Provide(func(options any, open ringseam.Opener) {
	options.(*Options).open = func(o *Options, _ int, _ ring) (ring, parker, error) {
		r, p, err := open(ringseam.Options{Entries: o.Entries, Pinned: o.Pinned})
		if err != nil || p == nil {
			return r, nil, err
		}
		return r, seamParker{p}, nil
	}
})

type seamParker struct{ p ringseam.Parker }

func (s seamParker) start(ready func(), failed func(error)) error { return s.p.Start(ready, failed) }
func (s seamParker) stop() error                                  { return s.p.Stop() }
