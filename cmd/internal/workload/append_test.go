// SPDX-License-Identifier: MIT

package workload

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/engine"
)

func appendJob(t *testing.T, goroutines int) Job {
	return Job{
		Suite: "file", Workload: "append", Goroutines: goroutines,
		Warm: time.Millisecond, Measure: 10 * time.Millisecond,
		Work: &Append{Dir: t.TempDir(), Record: 128, Seed: 9},
	}
}

// wantEmpty fails the test if the job left files in its directory.
func wantEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestAppendCountsRecords(t *testing.T) {
	j, l := appendJob(t, 3), &memoryLog{}
	s, err := j.RunWith(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	if s.Ops == 0 || s.Bytes != s.Ops*128 || s.Ops > int64(len(l.records)) {
		t.Errorf("sample %+v of %d records", s, len(l.records))
	}
	wantEmpty(t, of[Append](j).Dir)
}

func TestLogThatLostARecordIsAHardFailure(t *testing.T) {
	const at = 2 // two goroutines append four records at least, at both ends of the warm-up
	for name, tamper := range map[string]func(n int, record []byte) []byte{
		"lost in the middle": func(n int, r []byte) []byte {
			if n == at {
				return nil
			}
			return r
		},
		"lost at the end": func(n int, r []byte) []byte {
			if n >= at {
				return nil
			}
			return r
		},
		"damaged": func(n int, r []byte) []byte {
			if n == at {
				r[100] ^= 1
			}
			return r
		},
		"cut short": func(n int, r []byte) []byte {
			if n == at {
				return r[:64]
			}
			return r
		},
		"of an unknown writer": func(n int, r []byte) []byte {
			if n == at {
				r[recordGoroutine] = 200
			}
			return r
		},
	} {
		j := appendJob(t, 2)
		_, err := j.RunWith(t.Context(), &memoryLog{tamper: tamper})
		if err == nil || !strings.Contains(err.Error(), "the log has") {
			t.Errorf("%s: %v", name, err)
		}
		wantEmpty(t, of[Append](j).Dir)
	}
}

func TestAppendErrors(t *testing.T) {
	j := appendJob(t, 2)
	if _, err := j.RunWith(t.Context(), &memoryLog{err: io.ErrShortWrite}); !errors.Is(err, io.ErrShortWrite) || strings.Contains(err.Error(), "the log has") {
		t.Errorf("failing disk: %v", err)
	}
	wantEmpty(t, of[Append](j).Dir)
	if _, err := j.RunWith(t.Context(), plain{}); err == nil {
		t.Error("an engine without logs: no error")
	}
	of[Append](j).Record = minRecord - 1
	if _, err := j.RunWith(t.Context(), &memoryLog{}); err == nil {
		t.Error("tiny records: no error")
	}
	broken := &memoryLog{}
	broken.openErr = os.ErrPermission
	of[Append](j).Record = 128
	if _, err := j.RunWith(t.Context(), broken); !errors.Is(err, os.ErrPermission) {
		t.Errorf("log that cannot be opened: %v", err)
	}
	wantEmpty(t, of[Append](j).Dir)
	of[Append](j).Dir += "/missing"
	if _, err := j.RunWith(t.Context(), &memoryLog{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing directory: %v", err)
	}
}

// TestAppendEngines appends to real logs and reads them.
func TestAppendEngines(t *testing.T) {
	for _, name := range []string{engine.NameOS, engine.NameOSMutex, engine.NameRingside} {
		for _, c := range []struct{ record, goroutines int }{{128, 4}, {1001, 4}, {300 << 10, 16}} { // a group of MiB
			record, j := c.record, appendJob(t, c.goroutines)
			j.Engine, of[Append](j).Record, j.Measure = name, record, 30*time.Millisecond
			s, err := j.Run(t.Context())
			if err != nil || s.Ops == 0 || s.Backend == "" {
				t.Errorf("%s, records of %d bytes: %+v, %v", name, record, s, err)
			}
			wantEmpty(t, of[Append](j).Dir)
		}
	}
}
