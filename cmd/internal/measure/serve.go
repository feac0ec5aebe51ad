// SPDX-License-Identifier: MIT

package measure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// ServeWorker is the worker's side of [Process]: it reads one job from in, calls handle and
// writes the answer to out. The context of handle ends when in does, that is, when the parent has
// died; nothing is answered then.
func ServeWorker[Job, Answer any](ctx context.Context, in io.Reader, out io.Writer,
	handle func(context.Context, Job) (Answer, error),
) error {
	var job Job
	decoder := json.NewDecoder(in)
	if err := decoder.Decode(&job); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		// The parent writes nothing more, so this returns when it is gone.
		_, _ = io.Copy(io.Discard, in)
		cancel(errOrphaned)
	}()
	answer, err := handle(ctx, job)
	if errors.Is(err, context.Canceled) {
		return context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(answer)
}
