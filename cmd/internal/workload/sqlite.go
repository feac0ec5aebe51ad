// SPDX-License-Identifier: MIT

package workload

import (
	"context"

	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// sqlite runs a round of the suite "sqlite".
func (j Job) sqlite(ctx context.Context) (measure.Sample, error) {
	return j.SQLite.Run(ctx, j.Engine, measure.Plan{Warm: j.Warm, Measure: j.Measure})
}
