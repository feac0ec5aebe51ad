// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ringside-io/ringside/replica"
	"github.com/ringside-io/ringside/sqlitevfs/backup"
	"github.com/ringside-io/ringside/sqlitevfs/backup/s3"
)

// service is a node with its continuous backup.
type service struct {
	*replica.Node
	scratch  string // directory for temporary files
	follower *backup.Follower
}

func openNode(o replica.Options) (*service, error) {
	n, err := replica.Open(o)
	return &service{Node: n, scratch: filepath.Join(o.Dir, "scratch")}, err
}

// backupFlags are the flags of run for a continuous backup.
type backupFlags struct {
	target string
	time   time.Duration
}

func (f *backupFlags) parse() (backup.Target, error) {
	if f.time <= 0 {
		return nil, fmt.Errorf("run: -backup-keep: %v is not positive: %w", f.time, errUsage)
	}
	if f.target == "" {
		return nil, nil
	}
	t, err := s3.ParseTarget(f.target)
	if err != nil {
		return nil, fmt.Errorf("run: -backup: %w: %w", err, errUsage)
	}
	return t, nil
}

// follow begins the backup. A nil target is none.
func (n *service) follow(t backup.Target, keep time.Duration) (err error) {
	// What an earlier process has left there is of no use.
	if err := errors.Join(os.RemoveAll(n.scratch), os.Mkdir(n.scratch, 0o700)); err != nil || t == nil {
		return err
	}
	n.follower, err = backup.Follow(n.Feed(), backup.Options{Target: t, Keep: keep, Scratch: n.scratch})
	return err
}

// unfollow ends the backup. A leader stores what the target lacks before: all nodes may be stopped.
func (n *service) unfollow() {
	if n.follower == nil {
		return
	}
	if n.follower.Active() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := n.follower.Sync(ctx); err != nil {
			slog.Warn("the backup lacks commits, which the next leader stores", "error", err)
		}
	}
	_ = n.follower.Close()
}

// backupState is the state of the continuous backup on this node.
type backupState struct {
	Active bool `json:"active"` // this node stores the commits
	backup.Stats
}

func (n *service) backupState() *backupState {
	if n.follower == nil {
		return nil
	}
	return &backupState{n.follower.Active(), n.follower.Stats()}
}

// String returns the state for people.
func (b *backupState) String() string {
	switch {
	case !b.Active:
		return "by the leader"
	case b.Lag > 0 && b.Error != "":
		return fmt.Sprintf("FAILS, %d databases wait since %v: %s", b.Behind, b.Lag.Round(time.Second), b.Error)
	case b.Error != "":
		return "FAILS: " + b.Error
	}
	return fmt.Sprintf("by this node, %d objects stored, %d databases wait, %v behind", b.Objects, b.Behind, b.Lag.Round(time.Millisecond))
}

// writeBackupMetrics writes the counters of the backup, if there is one.
func (n *service) writeBackupMetrics(w io.Writer) {
	b := n.backupState()
	if b == nil {
		return
	}
	active := 0.0
	if b.Active {
		active = 1
	}
	for _, m := range []struct {
		name, kind, help string
		value            float64
	}{
		{"active", "gauge", "1 if this node stores the commits, as the leader does", active},
		{"lag_seconds", "gauge", "age of the oldest commit that the target lacks", b.Lag.Seconds()},
		{"behind", "gauge", "databases with commits that the target lacks", float64(b.Behind)},
		{"objects_total", "counter", "objects that this node has stored", float64(b.Objects)},
		{"bytes_total", "counter", "bytes in them", float64(b.Bytes)},
		{"requests_total", "counter", "requests to the target", float64(b.Requests)},
		{"failures_total", "counter", "requests that failed and were repeated", float64(b.Failures)},
	} {
		name := "ringside_replica_backup_" + m.name
		fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n%s %g\n", name, m.help, name, m.kind, name, m.value)
	}
}

// parseBefore returns a time, or one so long ago.
func parseBefore(text string, now time.Time) (time.Time, error) {
	if ago, err := time.ParseDuration(text); err == nil && ago > 0 {
		return now.Add(-ago), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, fmt.Errorf("%q is neither a time such as 2026-05-04T10:00:00Z nor a duration such as 90m", text)
	}
	return t, nil
}

// restore creates the databases of a backup: of one that the command backup has made, or of a continuous one.
func (n *service) restore(ctx context.Context, r request) error {
	from := r.Args[0]
	t, err := s3.ParseTarget(from)
	if err != nil {
		return err
	}
	if !strings.Contains(from, "://") {
		if _, err := os.Stat(filepath.Join(from, ".ringside-replica")); err != nil {
			if !r.Before.IsZero() || r.Missing {
				return fmt.Errorf("%s has no continuous backup of a cluster: leave -before and -missing out, or name the target of run -backup", from)
			}
			return n.Restore(ctx, from)
		}
	}
	all, err := backup.Databases(ctx, t)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return fmt.Errorf("%s has no backup of a database: name the target of run -backup", from)
	}
	var names, exist []string
	for _, b := range all {
		switch {
		case b.Gone(r.Before):
		case slices.Contains(n.List(), b.Name):
			exist = append(exist, b.Name)
		default:
			names = append(names, b.Name)
		}
	}
	if len(exist) > 0 && !r.Missing {
		return fmt.Errorf("nothing was restored, because %d databases exist in the cluster, the first one is %q: delete them, use -missing for the others, or restore into another cluster: %w", len(exist), exist[0], os.ErrExist)
	}
	for i, name := range names {
		err := n.restoreOne(ctx, t, name, r.Before)
		if errors.Is(err, backup.ErrNone) && !r.Before.IsZero() {
			continue // it was created later
		}
		if err != nil {
			return fmt.Errorf("%d of %d databases are restored, repeat with -missing for the others: %w", i, len(names), err)
		}
	}
	return nil
}

func (n *service) restoreOne(ctx context.Context, t backup.Target, name string, before time.Time) error {
	dir, err := os.MkdirTemp(n.scratch, "restore-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "db")
	if _, err := backup.Restore(ctx, t, name, file, backup.RestoreOptions{Before: before}); err != nil {
		return err
	}
	return n.Import(ctx, name, file)
}
