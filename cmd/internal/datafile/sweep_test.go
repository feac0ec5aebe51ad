// SPDX-License-Identifier: MIT

//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package datafile

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

func TestSweepTakesOnlyWhatNobodyOwns(t *testing.T) {
	dir := t.TempDir()
	owned, err := Create(t.Context(), dir, UnitSize, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = owned.Remove() })
	stale := filepath.Join(dir, newName())
	foreign := []string{"ringside-bench-.dat", "ringside-bench-0123456789abcdeX.dat", "ringside-bench-0123456789abcdef.db", "notes"}
	for _, name := range append(foreign, filepath.Base(stale)) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(dir, newName())
	folder := filepath.Join(dir, newName())
	if err := errors.Join(os.Symlink(filepath.Join(dir, "notes"), link), os.Mkdir(folder, 0o700)); err != nil {
		t.Fatal(err)
	}
	removed, err := Sweep(dir)
	if err != nil || !slices.Equal(removed, []string{stale}) {
		t.Errorf("removed %v, %v; want only %s", removed, err, stale)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != len(foreign)+3 {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestSweepAndCreateAtOnce(t *testing.T) {
	dir := t.TempDir()
	var sweepers, creators sync.WaitGroup
	quit := make(chan struct{})
	for range 2 {
		sweepers.Go(func() {
			for {
				select {
				case <-quit:
					return
				default:
				}
				if _, err := Sweep(dir); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 4 {
		creators.Go(func() {
			for range 50 {
				d, err := Create(t.Context(), dir, UnitSize, 1, nil)
				if err != nil {
					t.Error(err)
					return
				}
				if err := d.Remove(); err != nil {
					t.Errorf("a sweep took an owned file: %v", err)
				}
			}
		})
	}
	creators.Wait()
	close(quit)
	sweepers.Wait()
	wantEmpty(t, dir)
}
