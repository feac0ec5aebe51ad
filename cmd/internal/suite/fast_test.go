// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/fastdev"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/workload"
)

// fakeDevice is a directory that replaces the fast device.
type fakeDevice struct {
	dir, note string
	size      int64
	closed    int
}

func (d *fakeDevice) Dir() string        { return d.dir }
func (d *fakeDevice) Filesystem() string { return "xfs" }
func (d *fakeDevice) Note() string       { return d.note }
func (d *fakeDevice) Close() error       { d.closed++; return nil }

// withFast adds a storage in memory to the world.
func (w *world) withFast(t *testing.T) *fakeDevice {
	d := &fakeDevice{dir: t.TempDir()}
	w.fastDevice = func(_ context.Context, size int64) (FastDevice, error) {
		d.size = size
		return d, nil
	}
	return d
}

func TestFastDeviceIsMeasuredBesideTheDisk(t *testing.T) {
	w, opts := newWorld(), smallFile(t)
	d := w.withFast(t)
	opts.Fast, opts.NoFio = FastAdd, false
	rounds := w.withFio(nil)
	run, err := File(t.Context(), opts, w.Env)
	if err != nil || len(run.Skipped) != 0 || len(run.Cells) != defaultCells+4 {
		t.Fatalf("%d cells, skipped %v, %v", len(run.Cells), run.Skipped, err)
	}
	for i, c := range run.Cells {
		fast := i >= defaultCells
		if (c.Params["storage"] == StorageFast) != fast || (c.Params["device"] == fastDeviceName) != fast {
			t.Errorf("cell %d: %v", i, c.Params)
		}
	}
	if last := of[workload.RandRead](w.jobs[len(w.jobs)-1]); !strings.HasPrefix(last.Path, d.dir+"/") || !last.Direct {
		t.Errorf("last job %+v", last)
	}
	if last := (*rounds)[len(*rounds)-1]; !strings.HasPrefix(last.Path, d.dir+"/") {
		t.Errorf("last round of fio %+v", last)
	}
	if h := run.Host; len(h.Storages) != 1 || h.Storages[0].FileBytes != opts.Size || h.Storages[0].Filesystem != "xfs" || h.FileBytes != opts.Size {
		t.Errorf("host %+v", h)
	}
	if d.closed != 1 || d.size != opts.Size+fastdev.Overhead {
		t.Errorf("closed %d times, size %d", d.closed, d.size)
	}
	wantEmpty(t, opts.Dir)
	wantEmpty(t, d.dir)
}

func TestFastDeviceAlone(t *testing.T) {
	w, opts := newWorld(), smallFile(t)
	d := w.withFast(t)
	d.note = "ext4 instead of XFS"
	opts.Fast = FastOnly
	w.maker.Create = func(ctx context.Context, dir string, size int64, seed uint64, written func(int64)) (*datafile.File, error) {
		if dir != d.dir {
			t.Errorf("a file in %s", dir)
		}
		return datafile.Create(ctx, dir, size, seed, written)
	}
	run, err := File(t.Context(), opts, w.Env)
	if err != nil || len(run.Cells) != 4 || run.Host.Device != "" || !slices.Contains(run.Notes, d.note) {
		t.Errorf("%d cells, host %+v, notes %v, %v", len(run.Cells), run.Host, run.Notes, err)
	}
}

func TestNoFastDeviceIsSkippedByName(t *testing.T) {
	w, opts := newWorld(), smallFile(t)
	opts.Fast = FastAdd
	w.fastDevice = func(context.Context, int64) (FastDevice, error) {
		return nil, fmt.Errorf("%w: mkfs.xfs is not installed", fastdev.ErrUnavailable)
	}
	run, err := File(t.Context(), opts, w.Env)
	if err != nil || len(run.Cells) != defaultCells || len(run.Skipped) != 1 || run.Skipped[0].Params["storage"] != StorageFast ||
		!strings.Contains(run.Skipped[0].Reason, "mkfs.xfs") {
		t.Errorf("%d cells, skipped %v, %v", len(run.Cells), run.Skipped, err)
	}
	opts.Fast = FastOnly
	if run, err = File(t.Context(), opts, w.Env); !errors.Is(err, ErrNothing) || len(run.Skipped) != 1 {
		t.Errorf("only the fast device: %v, skipped %v", err, run.Skipped)
	}
}

func TestNoDiskDoesNotEndTheFastDevice(t *testing.T) {
	w, opts := newWorld(), smallFile(t)
	d := w.withFast(t)
	opts.Fast, opts.Dir = FastAdd, "/does/not/exist"
	run, err := File(t.Context(), opts, w.Env)
	if err != nil || len(run.Cells) != 4 || len(run.Skipped) != 1 || !strings.Contains(run.Skipped[0].Reason, "--dir") {
		t.Errorf("%d cells, skipped %v, %v", len(run.Cells), run.Skipped, err)
	}
	wantEmpty(t, d.dir)
}

func TestFastDeviceIsClosedWhateverHappens(t *testing.T) {
	for name, breakIt := range map[string]func(*world, context.CancelFunc){
		"a failing round": func(w *world, _ context.CancelFunc) {
			w.Workers.Round = func(_ context.Context, j workload.Job) (measure.Sample, error) {
				if of[workload.RandRead](j) != nil {
					return measure.Sample{}, errors.New("broken")
				}
				return measure.Sample{}, nil
			}
		},
		"an interrupt": func(w *world, cancel context.CancelFunc) {
			w.Workers.Round = func(ctx context.Context, _ workload.Job) (measure.Sample, error) {
				cancel()
				return measure.Sample{}, ctx.Err()
			}
		},
		"no room for the file": func(w *world, _ context.CancelFunc) {
			w.maker.Free = func(string) (int64, error) { return 1, nil }
		},
	} {
		w, opts := newWorld(), smallFile(t)
		d := w.withFast(t)
		opts.Fast = FastOnly
		ctx, cancel := context.WithCancel(t.Context())
		breakIt(w, cancel)
		if _, err := File(ctx, opts, w.Env); err == nil {
			t.Errorf("%s: no error", name)
		}
		cancel()
		if d.closed != 1 {
			t.Errorf("%s: closed %d times", name, d.closed)
		}
		wantEmpty(t, d.dir)
	}
}

func TestFastSizeLeavesMemory(t *testing.T) {
	for _, tc := range []struct{ size, free, want int64 }{
		{1 << 30, 0, 1 << 30},
		{1 << 30, 16 << 30, 1 << 30},
		{1 << 30, 2 << 30, 512 << 20},
		{1 << 30, 256 << 20, 64 << 20},
		{1 << 30, 255 << 20, 0},
		{1 << 20, 4 << 20, 1 << 20},
	} {
		f := &fileRun{opts: FileOptions{Size: tc.size}, env: Env{machine: machine{availableMemory: func() int64 { return tc.free }}}}
		if got, err := f.fastSize(); got != tc.want || (err == nil) != (tc.want > 0) {
			t.Errorf("%d of %d free: %d, %v; want %d", tc.size, tc.free, got, err, tc.want)
		} else if err != nil && !strings.HasSuffix(err.Error(), "needs 256 MiB of available memory, and 255 MiB are available: free some, or leave the device out with --fast=none") {
			t.Error(err)
		}
	}
}
