// SPDX-License-Identifier: MIT

package replica

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// A database may be deleted while this node is away, and the log that says so may be cut. When the node has the list
// of all databases again, it removes the files that have none. They lie in data/, which belongs to the node.
// Only the state machine calls sweep: it alone makes and removes databases.

// sweep removes database files in data/ that belong to no database. Files of other kinds stay.
func (cat *catalog) sweep() {
	var left []string
	err := filepath.WalkDir(cat.data, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(cat.data, path)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(rel)
		if isSeal(name) {
			return nil
		}
		for _, ending := range reservedEndings {
			name = strings.TrimSuffix(name, ending)
		}
		if db, _ := cat.named(name); db == nil {
			left = append(left, path)
		}
		return nil
	})
	if err != nil {
		cat.node.log.Warn("replica: data/ cannot be searched for files of deleted databases", "error", err)
	}
	for _, path := range left {
		main := path
		for _, ending := range reservedEndings {
			main = strings.TrimSuffix(main, ending)
		}
		if path == main && !isDatabase(path) {
			cat.node.log.Warn("replica: a file in data/ is no database, and stays", "file", path)
			continue
		}
		err := os.Remove(path)
		if err == nil {
			cat.mu.Lock()
			cat.empty(filepath.Dir(path))
			cat.mu.Unlock()
			cat.node.log.Info("replica: the file of a deleted database was removed", "file", path)
		} else if !errors.Is(err, os.ErrNotExist) {
			cat.node.log.Warn("replica: the file of a deleted database cannot be removed", "error", err)
		}
	}
}

// isDatabase reports whether a file begins as SQLite databases do.
func isDatabase(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var head [16]byte
	_, err = io.ReadFull(f, head[:])
	return err == nil && bytes.Equal(head[:], []byte("SQLite format 3\x00"))
}
