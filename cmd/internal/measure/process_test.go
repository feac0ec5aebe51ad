// SPDX-License-Identifier: MIT

package measure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

// roleEnv makes the test binary act as a worker.
const roleEnv = "RINGSIDE_MEASURE_ROLE"

type testJob struct{ N int }

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case "":
		os.Exit(m.Run())
	case "double":
		exitWith(ServeWorker(context.Background(), WorkerInput(), os.Stdout,
			func(_ context.Context, j testJob) (testJob, error) { return testJob{2 * j.N}, nil }))
	case "fail":
		exitWith(ServeWorker(context.Background(), WorkerInput(), os.Stdout,
			func(context.Context, testJob) (testJob, error) { return testJob{}, errors.New("no such ring") }))
	case "wait":
		exitWith(ServeWorker(context.Background(), WorkerInput(), os.Stdout,
			func(ctx context.Context, _ testJob) (testJob, error) {
				fmt.Fprintln(os.Stderr, "waiting")
				<-ctx.Done()
				return testJob{}, ctx.Err()
			}))
	case "turns":
		exitWith(ServeWorker(context.Background(), WorkerInput(), os.Stdout, func(ctx context.Context, j turningJob) (Sample, error) { return j.run(ctx) }))
	case "garbage":
		fmt.Println("not JSON")
	}
	os.Exit(0)
}

func exitWith(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func testWorker(t *testing.T, role string) Process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Process{Path: self, Env: append(os.Environ(), roleEnv+"="+role, "GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0")}
}

func TestProcess(t *testing.T) {
	var answer testJob
	if err := testWorker(t, "double").Run(t.Context(), testJob{21}, &answer); err != nil || answer.N != 42 {
		t.Errorf("got %v, %v", answer, err)
	}
}

func TestProcessFailure(t *testing.T) {
	err := testWorker(t, "fail").Run(t.Context(), testJob{}, &testJob{})
	var failed *WorkerError
	if !errors.As(err, &failed) || err.Error() != "no such ring" {
		t.Errorf("got %v", err)
	}
	if err := testWorker(t, "garbage").Run(t.Context(), testJob{}, &testJob{}); err == nil {
		t.Error("a result that is not JSON was accepted")
	}
	if err := (Process{Path: "/does/not/exist"}).Run(t.Context(), testJob{}, &testJob{}); err == nil {
		t.Error("a missing program was run")
	}
}

func TestProcessEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := testWorker(t, "wait").Run(ctx, testJob{}, &testJob{})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestServeWorkerEndsWithItsParent(t *testing.T) {
	in, parent := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- ServeWorker(t.Context(), in, io.Discard, func(ctx context.Context, _ testJob) (testJob, error) {
			_ = parent.Close()
			<-ctx.Done()
			return testJob{}, ctx.Err()
		})
	}()
	if _, err := io.WriteString(parent, "{\"N\":1}\n"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, errOrphaned) {
		t.Errorf("got %v", err)
	}
}

func TestServeWorkerRefusesGarbage(t *testing.T) {
	err := ServeWorker(t.Context(), strings.NewReader("nonsense"), io.Discard,
		func(context.Context, testJob) (testJob, error) { return testJob{}, nil })
	if err == nil {
		t.Error("a job that is not JSON was accepted")
	}
}

func TestTail(t *testing.T) {
	tl := &tail{limit: 4}
	for _, s := range []string{"ab", "cdef", "", "g"} {
		if n, err := tl.Write([]byte(s)); n != len(s) || err != nil {
			t.Fatalf("Write(%q) = %d, %v", s, n, err)
		}
	}
	if got := tl.String(); got != "defg" {
		t.Errorf("kept %q", got)
	}
}
