// SPDX-License-Identifier: MIT

package backup

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// claimant returns a Backup that has not begun.
func claimant(t *testing.T, dir string, to Target, check time.Duration) *Backup {
	t.Helper()
	b := &Backup{target: to, dir: dir, log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	b.owner.check = check
	t.Cleanup(b.resign)
	return b
}

// TestOwner has Backups that follow each other: after one that writes still, after one of this machine that has ended, and
// after one that was closed.
// Promise: sqlitevfs/backup-two-writers
func TestOwner(t *testing.T) {
	const check = 30 * time.Millisecond
	to, dir := newMemory(), t.TempDir()
	first := claimant(t, dir, to, check)
	if err := first.own(t.Context()); err != nil {
		t.Fatal(err)
	}
	last := make(chan time.Time)
	go func() { // it writes as long as it may
		var at time.Time
		for {
			began := time.Now()
			if err := first.own(context.Background()); errors.Is(err, ErrTaken) {
				break
			}
			at = began
			time.Sleep(time.Millisecond)
		}
		last <- at
	}()
	second := claimant(t, dir, to, check)
	if err := second.own(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now, at := time.Now(), <-last; !at.Before(now) {
		t.Errorf("the former owner wrote %v after the next one", at.Sub(now))
	}

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	first.owner.lock.Close() // as its end does, without resigning
	second.owner.number, second.owner.lock = 0, nil
	if second.owner.check = time.Hour; second.own(ctx) != nil {
		t.Error("it waits for a process of this machine that has ended")
	}
	second.resign()
	third := claimant(t, t.TempDir(), to, time.Hour)
	if err := third.own(ctx); err != nil {
		t.Error("it waits for a Backup that was closed:", err)
	}
	if len(to.all) != 1 {
		t.Errorf("%d objects of owners", len(to.all))
	}
}

// TestTwoWriters starts a Backup while a process elsewhere writes the same stream. That process then ends with ErrTaken, and
// the target has the state of the newer one.
// Promise: sqlitevfs/backup-two-writers
func TestTwoWriters(t *testing.T) {
	to := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "BACKUP_TEST_WRITER="+t.TempDir(), "BACKUP_TEST_TARGET="+to, "BACKUP_TEST_MODE="+modes[0])
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	for deadline := time.Now().Add(time.Minute); count(t, Dir(to), "tenant.db", 0) < 3; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the first writer stores nothing")
		}
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "tenant.db")
	b := start(t, dir, Dir(to), func(o *Options) { o.check = writerCheck })
	db := open(t, path, modes[0])
	defer db.Close()
	for i := range 5 {
		if err := commit(db, i); err != nil {
			t.Fatal(err)
		}
		synced(t, b)
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(said.String(), ErrTaken.Error()) {
		t.Errorf("the first writer: %v, %s", err, said.String())
	}
	same(t, Dir(to), "tenant.db", path, 5)
	if r, err := Verify(t.Context(), Dir(to), "tenant.db"); err != nil || len(r.Problems) > 0 {
		t.Errorf("Verify: %v, %v", r.Problems, err)
	}
}
