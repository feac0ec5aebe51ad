// SPDX-License-Identifier: MIT

package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ringside-io/ringside/sqlitevfs/backup"
)

// With this file, which `make chaos` adds to the package by an overlay, the nodes of TestChaos have a continuous backup. It is no
// file of the package, whose module would otherwise require the one of backup.
func init() {
	continuous.follow = func(n *Node, target string) (func(context.Context) error, func() error, error) {
		scratch := filepath.Join(n.opts.Dir, "scratch")
		if err := errors.Join(os.RemoveAll(scratch), os.Mkdir(scratch, 0o700)); err != nil {
			return nil, nil, err
		}
		f, err := backup.Follow(n.Feed(), backup.Options{
			Target: backup.Dir(target), Interval: 20 * time.Millisecond, SnapshotEvery: time.Second, Keep: 2 * time.Second, Scratch: scratch,
			Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		})
		if err != nil {
			return nil, nil, err
		}
		return f.Sync, f.Close, nil
	}
	continuous.judge = func(t testing.TB, target, name string, files []string) (wrong []string) {
		ctx, to := t.Context(), backup.Dir(target)
		say := func(format string, args ...any) {
			wrong = append(wrong, "the backup of "+name+": "+fmt.Sprintf(format, args...))
		}
		r, err := backup.Verify(ctx, to, name)
		if err != nil || len(r.Problems) > 0 || !r.Deleted.IsZero() {
			say("%+v, %v", r, err)
		}
		restored := filepath.Join(t.TempDir(), "restored")
		if _, err := backup.Restore(ctx, to, name, restored, backup.RestoreOptions{}); err != nil {
			say("%v", err)
		} else {
			stock(t, restored)
			files = append(files, restored)
		}
		for _, file := range files {
			if same, err := backup.Current(ctx, to, name, file); !same || err != nil {
				say("it has not the state of %s (%v)", file, err)
			}
		}
		t.Logf("the backup of %s: transaction %d, %d objects", name, r.TXID, r.Objects)
		return wrong
	}
}
