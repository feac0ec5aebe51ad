// SPDX-License-Identifier: MIT

package appendlog_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/ringside-io/ringside/appendlog"
	"github.com/ringside-io/ringside/internal/testing/faultsweep"
)

// swept is the environment of the operations of the fault sweep.
type swept struct {
	dir     string
	content []byte
}

// fresh returns the path of a log that does not exist.
func (w *swept) fresh(t *faultsweep.Trial) string {
	dir := filepath.Join(w.dir, "log")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatalf("%v", err)
	}
	return dir
}

// appends appends under faults, and then reads the acknowledged records.
func (w *swept) appends(t *faultsweep.Trial) {
	dir := w.fresh(t)
	l, err := appendlog.Open(dir, appendlog.Options{SegmentSize: 8192, Ahead: 4096})
	if err != nil {
		t.Fatalf("%v", err)
	}
	var acked [][]byte
	t.Arm()
	for i := range 6 {
		p := w.content[i*1500 : i*1500+1500]
		_, err := l.Append(p)
		if t.Judge("Append", err) {
			acked = append(acked, p)
		} else if _, err := l.Append(p); err == nil {
			t.Errorf("an append succeeded after one that failed")
		}
	}
	t.Disarm()
	_ = l.Close() // returns the failure again
	l, err = appendlog.Open(dir, appendlog.Options{SegmentSize: 8192})
	if err != nil {
		t.Fatalf("open again: %v", err)
	}
	defer l.Close()
	n := 0
	for r, err := range l.Records(appendlog.Position{}) {
		if err != nil {
			t.Fatalf("%v", err)
		}
		if n < len(acked) && !bytes.Equal(r.Data, acked[n]) {
			t.Errorf("record %d differs", n)
		}
		n++
	}
	if n < len(acked) {
		t.Errorf("%d records are left, want %d", n, len(acked))
	}
}

// life opens a log, appends under faults in every other way, and reads the acknowledged
// records.
func (w *swept) life(t *faultsweep.Trial) {
	dir := w.fresh(t)
	t.Arm()
	defer t.Disarm()
	l, err := appendlog.Open(dir, appendlog.Options{SegmentSize: 8192, Ahead: 4096})
	if !t.Judge("Open", err) {
		return
	}
	ctx := context.Background()
	one, two := w.content[:100], w.content[100:300]
	var acked [][]byte
	note := func(what string, err error, records ...[]byte) {
		if t.Judge(what, err) {
			acked = append(acked, records...)
		}
	}
	_, err = l.AppendBatch([][]byte{one, two})
	note("AppendBatch", err, one, two)
	_, err = l.AppendContext(ctx, two)
	note("AppendContext", err, two)
	t.Judge("Rotate", l.Rotate())
	_, err = l.AppendBatchContext(ctx, [][]byte{one})
	note("AppendBatchContext", err, one)
	t.Judge("Sync", l.Sync())
	t.Judge("Trim", l.Trim(appendlog.Position{}))
	t.Judge("Close", l.Close()) // returns the failure again
	n := 0
	for r, err := range appendlog.Read(dir, appendlog.ReadOptions{}) {
		if err != nil {
			t.Judge("Read", err)
			return
		}
		if n < len(acked) && !bytes.Equal(r.Data, acked[n]) {
			t.Errorf("record %d differs", n)
		}
		n++
	}
	if n < len(acked) {
		t.Errorf("%d records are left, want %d", n, len(acked))
	}
}

func (w *swept) operations() []faultsweep.Operation {
	return []faultsweep.Operation{
		{Name: "appending", Run: w.appends, Covers: "Log.Append Log.Records"},
		{Name: "a life", Run: w.life, Most: 3,
			Covers: "Open Log.AppendBatch Log.AppendContext Log.AppendBatchContext Log.Rotate Log.Sync Log.Trim Log.Close Read"},
	}
}

func newSwept(t *testing.T) *swept {
	content := make([]byte, 9000)
	for i := range content {
		content[i] = byte(i*7 + i/251)
	}
	return &swept{dir: t.TempDir(), content: content}
}

// TestFaultSweep makes each call to the kernel fail in turn.
// Promise: appendlog/right-result-error
func TestFaultSweep(t *testing.T) {
	faultsweep.Need(t)
	faultsweep.Check(t, newSwept(t).operations())
}

// TestFaultSweepCoversAll compares the sweep with the exported functions of the package.
// Promise: appendlog/right-result-error
func TestFaultSweepCoversAll(t *testing.T) {
	faultsweep.API(t, newSwept(t).operations(), faultsweep.Exempt{
		"makes no call to the kernel": "Log.End Log.Err Log.Recovery Log.Segments Log.Stats " +
			"Stats.Plus Position.Compare Record.Compare CorruptError.Error SyncMode.String",
	})
}
