// SPDX-License-Identifier: MIT

package suite

import (
	"context"

	"github.com/ringside-io/ringside/cmd/internal/engine"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/cmd/internal/workload"
)

const (
	nameAppend = "append"
	// paramRecord is the size of a record in bytes.
	paramRecord = "record"

	recordSize = 128
)

// durableAppend lets goroutines append records to one log, each of which is on the disk when its
// append returns: os.File behind a mutex, os.File with O_APPEND, and appendlog.Log.
type durableAppend struct{ bothEngines }

func (durableAppend) name() string { return nameAppend }

func (durableAppend) cells(o FileOptions) []cell {
	own := []int{1, 8, 64}
	switch {
	case o.Brief:
		own = own[2:]
	case o.Full:
		own = append(own, 512)
	}
	var out []cell
	for _, g := range o.goroutinesOr(own...) {
		out = append(out, cell{
			workload: nameAppend, storage: o.storages()[0], goroutines: g, more: report.Params{paramRecord: recordSize},
		})
	}
	return out
}

func (durableAppend) impossible(f *fileRun, c cell) string { return f.readOnly(c) }

func (durableAppend) engines(*fileRun, cell) []string {
	return []string{engine.NameOS, engine.NameOSEach, engine.NameRingside}
}

// prepare needs nothing: each round makes its log.
func (durableAppend) prepare(context.Context, *fileRun, cell) error { return nil }

// round runs one engine once.
func (durableAppend) round(ctx context.Context, f *fileRun, c cell, name string, pair int) (measure.Sample, error) {
	dir, err := f.stores[c.storage].made.Scratch()
	if err != nil {
		return measure.Sample{}, err
	}
	j := f.job(c, name)
	j.Append = &workload.Append{Dir: dir, Record: recordSize, Seed: f.opts.Seed + uint64(pair)}
	return f.env.Round(ctx, j)
}
