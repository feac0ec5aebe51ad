// SPDX-License-Identifier: MIT

package workload

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/engine"
	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// of returns the work of a job, or nil if it is of another type.
func of[T any](j Job) *T {
	w, _ := any(j.Work).(*T)
	return w
}

// RunWith runs the job with e instead of the engine that the job names.
func (j Job) RunWith(ctx context.Context, e engine.Engine) (measure.Sample, error) {
	return j.Work.(fileWork).runWith(ctx, e, j.plan())
}

// TestJobsInJSON encodes and decodes a job with each type of work.
func TestJobsInJSON(t *testing.T) {
	for _, w := range append([]Work{nil, &Batch{RandRead: RandRead{Path: "x", Span: 7}, Count: 3}}, works...) {
		j, got := Job{Suite: "file", Engine: "os", Goroutines: 2, Measure: time.Second, Work: w}, Job{}
		b, err := json.Marshal(j)
		if err == nil {
			err = json.Unmarshal(b, &got)
		}
		if err != nil || !reflect.DeepEqual(got, j) {
			t.Errorf("%s: %+v, %v", b, got, err)
		}
	}
	if err := json.Unmarshal([]byte(`{"kind":"*workload.Dance","work":{}}`), new(Job)); err == nil || !strings.Contains(err.Error(), "Dance") {
		t.Errorf("unknown work: %v", err)
	}
}

// realFile makes a file of 1 MiB for the time of the test.
func realFile(t *testing.T) *datafile.File {
	t.Helper()
	d, err := datafile.Create(t.Context(), t.TempDir(), 1<<20, contentSeed, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Remove(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// directness returns the ways in which the file can be opened: without and with O_DIRECT.
func directness(t testing.TB, path string) []bool {
	if errors.Is(ProbeDirect(engine.OS{}, path), ErrNoDirect) {
		t.Log("O_DIRECT: not on this file system")
		return []bool{false}
	}
	return []bool{false, true}
}
