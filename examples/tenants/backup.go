// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/ringside-io/ringside/sqlitevfs/backup"
)

// startBackup begins the backup of all databases that are opened later. It returns nil if there is none.
func startBackup(c config) (*backup.Backup, error) {
	if c.backup == "" {
		return nil, nil
	}
	if err := os.MkdirAll(c.backup, 0o700); err != nil {
		return nil, err
	}
	return backup.Start(backup.Options{Dir: c.dir, Target: backup.Dir(c.backup)})
}

// endBackup waits until the target has all commits, at most the given time.
func endBackup(b *backup.Backup, wait time.Duration) {
	if b == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	if err := b.Shutdown(ctx); err != nil {
		log.Printf("the backup lacks commits, which it takes after the next start when their databases commit: %v", err)
	}
}

// restore writes the databases of a backup to a directory that has none of them.
func restore(ctx context.Context, from, dir string) error {
	all, err := backup.Databases(ctx, backup.Dir(from))
	if err != nil {
		return err
	}
	if len(all) == 0 { // the directory may be another one than was meant
		return fmt.Errorf("%s has no backup of a database", from)
	}
	names := make([]string, len(all))
	for i, r := range all {
		names[i] = r.Name
	}
	if err := backup.RestoreAll(ctx, backup.Dir(from), names, dir, backup.RestoreOptions{}, nil); err != nil {
		return err
	}
	log.Printf("restored %d databases", len(names))
	return nil
}
