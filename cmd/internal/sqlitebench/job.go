// SPDX-License-Identifier: MIT

package sqlitebench

import (
	"context"
	"errors"
	"os"

	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// Job is one round. One of its parts is set.
type Job struct {
	// Dir is an existing directory, in which the round has one of its own while it lasts.
	Dir     string   `json:"dir"`
	Speed   *Speed   `json:"speed,omitempty"`
	Tenants *Tenants `json:"tenants,omitempty"`
	Cold    *Cold    `json:"cold,omitempty"`
}

// Run does the job in this process. The plan's times are for what is measured by time.
func (j Job) Run(ctx context.Context, engine string, plan measure.Plan) (s measure.Sample, err error) {
	dir, err := os.MkdirTemp(j.Dir, "round-")
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	switch {
	case j.Speed != nil:
		return j.Speed.run(ctx, engine, dir)
	case j.Tenants != nil:
		return j.Tenants.run(ctx, engine, dir, plan)
	case j.Cold != nil:
		return j.Cold.run(ctx, engine, dir)
	}
	return s, errors.New("nothing to do")
}
