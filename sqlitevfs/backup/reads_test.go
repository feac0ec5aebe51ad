// SPDX-License-Identifier: MIT

package backup

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// stored returns a stream with files of several levels.
func stored(t *testing.T) (*timeline, *memory) {
	t.Helper()
	m := newMemory()
	l := newTimeline(t, m, 17)
	for i := range 12 {
		l.commit(time.Minute, false)
		if i == 5 {
			if err := l.compact(1); err != nil {
				t.Fatal(err)
			}
		}
	}
	return l, m
}

// TestReadsAreRepeated restores and verifies while each kind of read fails one time of two, in the middle of objects too.
// Promise: sqlitevfs/backup-store-fails
func TestReadsAreRepeated(t *testing.T) {
	l, m := stored(t)
	calls := 0
	m.hook = func(call string) error {
		if calls++; calls%2 == 1 && slices.Contains([]string{"List", "Get", "Read"}, call) {
			return errStopped
		}
		return nil
	}
	l.sound(1000*time.Hour, 0)
	if _, err := Databases(t.Context(), m); err != nil {
		t.Error(err)
	}
}

// TestReadsEnd has a store that fails for longer, of which the caller gets the error: it is no damage of the backup. Without
// permission nothing is repeated.
// Promise: sqlitevfs/backup-store-fails
func TestReadsEnd(t *testing.T) {
	l, m := stored(t)
	path := filepath.Join(t.TempDir(), "restored")
	for _, fails := range []string{"List", "Get", "Read"} {
		for _, failure := range []error{errStopped, fs.ErrPermission} {
			calls := 0
			m.hook = func(call string) error {
				if call == fails {
					calls++
					return failure
				}
				return nil
			}
			want := 1 + len(repeats)
			if failure == fs.ErrPermission {
				want = 1
			}
			if r, err := Verify(t.Context(), m, l.d.name); !errors.Is(err, failure) || len(r.Problems) > 0 {
				t.Errorf("Verify, %s fails: %v, %v", fails, err, r.Problems)
			} else if calls != want && (fails != "Read" || want == 1) { // each Get may bring a part
				t.Errorf("Verify, %s fails with %v: %d calls, want %d", fails, failure, calls, want)
			}
			if _, err := Restore(t.Context(), m, l.d.name, path, RestoreOptions{}); !errors.Is(err, failure) {
				t.Errorf("Restore, %s fails: %v", fails, err)
			}
			if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("Restore, %s fails: it has left a file, %v", fails, err)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	m.hook = func(string) error { cancel(); return errStopped }
	if _, err := Verify(ctx, m, l.d.name); err == nil {
		t.Error("Verify goes on after its context")
	}
}

// TestBrokenReadsAreNoDamage compacts from a store that breaks off each object in the middle. No snapshot takes the place of
// objects that are whole, unless this goes on for long.
// Promise: sqlitevfs/backup-lost-object
func TestBrokenReadsAreNoDamage(t *testing.T) {
	l, m := stored(t)
	m.hook = func(call string) error {
		if call == "Read" {
			return errStopped
		}
		return nil
	}
	for n := 1; n <= mostBroken; n++ {
		if err := l.compact(1); !errors.Is(err, errStopped) {
			t.Fatal(err)
		}
		if l.d.full != (n == mostBroken) {
			t.Fatalf("after %d compactions a snapshot follows: %v", n, l.d.full)
		}
	}
}

// mirrored is a Target that lists each object twice, in another order.
type mirrored struct{ Target }

func (m mirrored) List(ctx context.Context, prefix string) ([]Object, error) {
	all, err := m.Target.List(ctx, prefix)
	back := slices.Clone(all)
	slices.Reverse(back)
	return append(back, all...), err
}

// TestListings compacts, restores and verifies by lists that have objects twice, in any order.
// Promise: sqlitevfs/backup-verify-finds
func TestListings(t *testing.T) {
	l, m := stored(t)
	l.to, l.d.b.target = mirrored{m}, mirrored{m}
	for range 10 {
		l.commit(10*time.Minute, false)
		if err := l.round(); err != nil {
			t.Fatal(err)
		}
		l.sound(24*time.Hour, time.Hour)
	}
	all, err := Databases(t.Context(), l.to)
	if err != nil || len(all) != 1 || all[0].Objects != len(m.all) {
		t.Errorf("%+v, %v; %d objects", all, err, len(m.all))
	}
}
