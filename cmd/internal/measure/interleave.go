// SPDX-License-Identifier: MIT

package measure

import "context"

// Interleave runs each engine in turn, A B A B, pairs times, and returns the results in the order
// of engines; the i-th results of all engines form one pair. It stops at the first error.
func Interleave[T any](ctx context.Context, pairs int, engines []string,
	run func(ctx context.Context, engine string, pair int) (T, error),
) ([][]T, error) {
	results := make([][]T, len(engines))
	for pair := range pairs {
		for i, engine := range engines {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			r, err := run(ctx, engine, pair)
			if err != nil {
				return nil, err
			}
			results[i] = append(results[i], r)
		}
	}
	return results, nil
}
