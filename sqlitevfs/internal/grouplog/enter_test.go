// SPDX-License-Identifier: MIT

package grouplog

import "testing"

// TestEnter begins commits of several sizes, alone and concurrently.
// Promise: sqlitevfs/log-commits-left
func TestEnter(t *testing.T) {
	needLocks(t)
	l, _ := mustOpen(t, t.TempDir(), Options{})
	defer mustClose(t, l)
	w := wals(t, l.dir, 1)[0]
	w.attach(l)
	const small, large = 4 << 10, 24 << 10
	enter := func(what string, start, frames int64, log, next bool) {
		t.Helper()
		if turn := w.wal.Enter(start, start+frames); turn != (Turn{log, next}) {
			t.Errorf("%s: %+v, want log %v, next %v", what, turn, log, next)
		}
		w.wal.Leave()
	}
	at := w.wal.size
	for range 32 {
		enter("small and alone, the WAL grows", at, small, true, true)
	}
	enter("large and alone, the WAL grows", at, large, false, true)
	w.wal.size = at + 2*small
	enter("small and alone, in the WAL", at, small, false, false)
	enter("small and alone, the last of the WAL", at+small, small, false, true)
	enter("small and alone, behind it", at+2*small, small, true, true)
	w.wal.Truncated(at)
	enter("small and alone, the WAL was truncated", at, small, true, true)
	w.wal.size = at + large
	for range 8 {
		w.wal.Enter(at, at+small)
	}
	for range 8 {
		enter("small with others", at, small, true, true)
	}
	enter("large with others", at, large, false, true)
	for range 8 {
		w.wal.Leave()
	}
	for range 64 {
		enter("", at, large, false, l.company.Load() > 24)
	}
	l.opts.Always = true
	enter("small and alone, always", at, small, true, true)
	if n := l.busy.Load(); n != 0 {
		t.Errorf("%d commits are in progress, want 0", n)
	}
}
